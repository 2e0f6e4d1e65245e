/* Cell renderer of the run list. */
(function () {
  "use strict";
  const TAIL = 7;
  window.dashAgGridComponentFunctions = window.dashAgGridComponentFunctions || {};
  window.dashAgGridComponentFunctions.RunLink = function RunLink(props) {
    const href = `/overview?run=${encodeURIComponent(props.value)}`;
    const cut = Math.max(0, props.value.length - TAIL); // keep the end, which differs between runs of one workload
    return window.React.createElement(
      "a",
      { href, className: "tk-go tk-link tk-run-link", title: props.value, "aria-label": props.value },
      window.React.createElement("span", { className: "tk-run-head" }, props.value.slice(0, cut)),
      window.React.createElement("span", { className: "tk-run-tail" }, props.value.slice(cut)),
    );
  };

  window.dash_clientside = window.dash_clientside || {};
  window.dash_clientside.tracekit = Object.assign(window.dash_clientside.tracekit || {}, {
    runsFind: (wanted, options) => ({ ...options, quickFilterText: wanted || "" }),
  });
})();
