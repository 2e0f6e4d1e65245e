/* AG Grid in its place until a grid is near the window: a million characters that most of a page does without. */
"use strict";
(function () {
  const LATEST_MS = 300;
  let library = null;
  let loading = null;
  let turns = Promise.resolve();

  function run(src) {
    return new Promise((done, failed) => {
      const script = document.createElement("script");
      document.head.append(Object.assign(script, { src, async: false, onload: done, onerror: failed }));
    });
  }

  /* Load the library, and its part that it would load itself once all grids wait for it, which it then makes in one go. */
  async function loadBoth(address) {
    const whole = run(address);
    const part = run(new URL("async-community.js", address).href).catch(() => {});
    await whole;
    library = window.dash_ag_grid;
    window.dash_ag_grid = { ...library, AgGrid }; // so that Dash finds the same component as before
    await part;
  }

  function load() {
    loading = loading || loadBoth(document.getElementById("grid-library").href);
    return loading;
  }

  /* When the next grid may be made: each takes 0.1 s, in which the page does not respond, so that it does between them. */
  function turn() {
    const wait = window.requestIdleCallback || ((done) => window.setTimeout(done));
    turns = turns.then(() => new Promise((done) => { wait(done, { timeout: LATEST_MS }); }));
    return turns;
  }

  function AgGrid(props) {
    const { createElement, useEffect, useState } = window.React;
    const [ready, found] = useState(false);
    useEffect(() => {
      let isShown = true;
      load().then(turn).then(() => { if (isShown) { found(true); } });
      return () => { isShown = false; };
    }, []);
    return ready ? createElement(library.AgGrid, props) : null;
  }

  AgGrid.dashRenderType = true;
  window.dash_ag_grid = { AgGrid, getApi: () => null, getApiAsync: (id) => load().then(() => library.getApiAsync(id)) };
})();
