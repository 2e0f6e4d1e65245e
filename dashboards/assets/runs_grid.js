/* Cell renderer of the run list, and its refresh. */
(function () {
  "use strict";
  const TAIL = 7;
  window.dashAgGridComponentFunctions = window.dashAgGridComponentFunctions || {};
  window.dashAgGridComponentFunctions.RunLink = function RunLink(props) {
    if (!props.value) { return null; } // not loaded yet
    const sweep = props.data && props.data.sweep;
    const page = props.data && props.data.source === "suite" ? "suite" : "sweeps";
    const name = encodeURIComponent(props.value);
    const href = sweep ? `/${page}?cells=${name}` : `/overview?run=${name}`;
    const cut = Math.max(0, props.value.length - TAIL); // keep the end, which differs between runs of one workload
    return window.React.createElement(
      "a",
      { href, className: "tk-go tk-link tk-run-link", title: props.value, "aria-label": props.value },
      sweep ? null : window.React.createElement("span", { className: "tk-run-dot", style: { background: props.data.color } }),
      window.React.createElement("span", { className: "tk-run-head" }, props.value.slice(0, cut)),
      window.React.createElement("span", { className: "tk-run-tail" }, props.value.slice(cut)),
    );
  };

  function gridApi() {
    try {
      return window.dash_ag_grid.getApi("runs-grid");
    } catch { // not initialized yet: the grid will request its rows itself
      return null;
    }
  }

  const PAUSE_MS = 250;
  let pause = 0;

  /* Request the rows again: from the start after another filter (text after a pause in typing), else the pages in memory. */
  function again(_known, _text, _cells) {
    const changed = window.dash_clientside.callback_context.triggered.map((one) => one.prop_id);
    const api = gridApi();
    if (api && changed.some((name) => !name.startsWith("runs-known"))) {
      window.clearTimeout(pause); // the field itself must not wait: it would send an older text after a view is chosen
      pause = window.setTimeout(() => api.isDestroyed() || api.purgeInfiniteCache(), PAUSE_MS);
    } else if (api) {
      api.refreshInfiniteCache();
    }
    return window.dash_clientside.no_update;
  }

  window.dash_clientside = window.dash_clientside || {};
  window.dash_clientside.tracekit = Object.assign(window.dash_clientside.tracekit || {}, { runsAgain: again });
})();
