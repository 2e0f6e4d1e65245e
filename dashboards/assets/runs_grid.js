/* Cells of the list of runs. */
"use strict";
window.dashAgGridComponentFunctions = window.dashAgGridComponentFunctions || {};
window.dashAgGridComponentFunctions.RunLink = function RunLink(props) {
  const href = `/overview?run=${encodeURIComponent(props.value)}`;
  return window.React.createElement("a", { href, className: "tk-go tk-link", title: props.value }, props.value);
};

window.dash_clientside = window.dash_clientside || {};
window.dash_clientside.tracekit = Object.assign(window.dash_clientside.tracekit || {}, {
  runsFind: (wanted, options) => ({ ...options, quickFilterText: wanted || "" }),
});
