/* What happens in and around a grid: names for assistive technology, quick filter, sort in the address, copying. */
(() => {
  "use strict";
  window.tracekit = window.tracekit || {};

  /* The grid within an element; null until it is there. */
  function apiOf(place) {
    const grid = place && place.querySelector(".tk-grid");
    const known = grid && grid.id && window.dash_ag_grid && window.dash_ag_grid.getApi;
    return known ? window.dash_ag_grid.getApi(grid.id.startsWith("{") ? JSON.parse(grid.id) : grid.id) : null;
  }

  function bar(params) {
    if (typeof params.value !== "number") {
      return null;
    }
    const width = Math.max(0, Math.min(1, params.value)) * 100;
    return { "--tk-share": `${width.toFixed(2)}%` };
  }

  /* New grids get their name, and the sort that the address says. */
  function greet() {
    waiting = false;
    for (const root of document.querySelectorAll(".tk-table .ag-root:not([aria-label])")) {
      const place = root.closest(".tk-table");
      root.setAttribute("aria-label", place.getAttribute("aria-label"));
      const api = apiOf(place);
      if (api) {
        resort(api);
      }
    }
  }

  let waiting = false;
  new MutationObserver(() => {
    if (!waiting) {
      waiting = true;
      requestAnimationFrame(greet);
    }
  }).observe(document, { childList: true, subtree: true });

  /* The address may say another sort than when the page was made: it changes without the page being made anew. */
  function resort(api) {
    const [table, column, order] = split(new URLSearchParams(window.location.search).get("sort") || "");
    const now = api.getColumnState().find((one) => one.sort);
    if (table !== api.getGridOption("context").table || (now && now.colId === column && now.sort === order)) {
      return;
    }
    api.applyColumnState({ state: [{ colId: column, sort: order }], defaultState: { sort: null } });
  }

  function split(asked) {
    const [, table, column, order] = /^([^:]*):(.*):(asc|desc)$/.exec(asked) || [];
    return [table, column, order];
  }

  /* Without telling Dash, which would compute the page anew. */
  function sorted(params) {
    const by = params.api.getColumnState().find((one) => one.sort);
    const address = new URL(window.location.href);
    const [table] = split(address.searchParams.get("sort") || "");
    if (by) {
      address.searchParams.set("sort", `${params.context.table}:${by.colId}:${by.sort}`);
    } else if (table === params.context.table) {
      address.searchParams.delete("sort");
    }
    const search = address.search.replace(/%3A/g, ":");
    window.history.replaceState(window.history.state, "", address.pathname + search + address.hash);
  }

  document.addEventListener("input", (event) => {
    const place = event.target.closest && event.target.closest(".tk-filter") && event.target.closest(".tk-table");
    const api = apiOf(place);
    if (api) {
      api.setGridOption("quickFilterText", event.target.value);
      const count = place.querySelector(".tk-count");
      count.dataset.all = count.dataset.all || count.textContent;
      const left = api.getDisplayedRowCount().toLocaleString("en-US");
      count.textContent = event.target.value ? `${left} of ${count.dataset.all}` : count.dataset.all;
    }
  });

  /* Enter follows the link of a cell; Ctrl+C copies all of a cell that is shown cut. */
  document.addEventListener("keydown", (event) => {
    const cell = event.target.closest && event.target.closest(".tk-grid .ag-cell");
    if (!cell) {
      return;
    }
    const link = cell.querySelector("a[href]");
    if (event.key === "Enter" && link && event.target !== link) {
      link.click();
    } else if (event.key === "c" && (event.ctrlKey || event.metaKey) && !String(window.getSelection())) {
      navigator.clipboard.writeText(cell.textContent);
    }
  });

  window.tracekit.grid = { bar, sorted };
})();
