/* AG Grid in its place until a grid is near the window: a million characters that most of a page does without. */
"use strict";
(function () {
  let library = null;
  let loading = null;

  function load() {
    loading = loading || new Promise((done, failed) => {
      const script = document.createElement("script");
      script.src = document.getElementById("grid-library").href;
      script.onerror = failed;
      script.onload = () => {
        library = window.dash_ag_grid;
        window.dash_ag_grid = { ...library, AgGrid }; // so that Dash finds the same component as before
        done();
      };
      document.head.append(script);
    });
    return loading;
  }

  function AgGrid(props) {
    const { createElement, useEffect, useState } = window.React;
    const [ready, found] = useState(Boolean(library));
    useEffect(() => { if (!ready) { load().then(() => found(true)); } }, [ready]);
    return ready ? createElement(library.AgGrid, props) : null;
  }

  AgGrid.dashRenderType = true;
  window.dash_ag_grid = { AgGrid, getApi: () => null, getApiAsync: (id) => load().then(() => library.getApiAsync(id)) };
})();
