/* Functions that grids call by name; implemented in `grid*.js`. */
(() => {
  "use strict";
  window.tracekit = window.tracekit || {};
  window.dashAgGridFunctions = window.dashAgGridFunctions || {};
  window.dashAgGridComponentFunctions = window.dashAgGridComponentFunctions || {};
  window.dashAgGridFunctions.tracekit = {
    human: (value, format) => window.tracekit.human(value, format),
    exact: (value, base) => window.tracekit.exact(value, base),
    bar: (params) => window.tracekit.grid.bar(params),
    treeShows: (params) => window.tracekit.grid.treeShows(params),
    sorted: (params) => window.tracekit.grid.sorted(params),
  };
})();
