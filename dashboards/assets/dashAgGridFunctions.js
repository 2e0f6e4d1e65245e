/* Functions that the grids call by name. */
"use strict";
window.dashAgGridFunctions = window.dashAgGridFunctions || {};
window.dashAgGridFunctions.tracekit = { human(value, unit) { return value === null || value === undefined ? "–" : String(value) + " " + unit; } };
