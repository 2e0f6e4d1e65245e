/* Grid behaviour: accessible names, quick filter, sort order in the address, copying. */
(() => {
  "use strict";
  window.tracekit = window.tracekit || {};

  /* The grid API of a table; null until the grid exists. */
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

  /* Show a grid once its columns fill its width, for which it waits a frame. */
  function show(root) {
    requestAnimationFrame(() => requestAnimationFrame(() => root.toggleAttribute("data-sized", true)));
  }

  /* Give new grids their accessible name, and the sort order in the address. */
  function initNewGrids() {
    waiting = false;
    for (const root of document.querySelectorAll(".tk-table .ag-root:not([aria-label])")) {
      const place = root.closest(".tk-table");
      root.setAttribute("aria-label", place.getAttribute("aria-label"));
      show(root);
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
      requestAnimationFrame(initNewGrids);
    }
  }).observe(document, { childList: true, subtree: true });

  /* Apply the sort order in the address, which can change without reloading the page. */
  function resort(api) {
    const [table, column, order] = split(new URLSearchParams(window.location.search).get("sort") || "");
    const now = api.getColumnState().find((one) => one.sort);
    if (table !== api.getGridOption("context").table || (now && now.colId === column && now.sort === order)) {
      return;
    }
    api.applyColumnState({ state: [{ colId: column, sort: order }], defaultState: { sort: null } });
  }

  function split(sort) {
    const [, table, column, order] = /^([^:]*):(.*):(asc|desc)$/.exec(sort) || [];
    return [table, column, order];
  }

  /* Write the sort order to the address without notifying Dash, which would recompute the page. */
  function sorted(params) {
    const by = params.api.getColumnState().find((one) => one.sort);
    const address = new URL(window.location.href);
    const [table] = split(address.searchParams.get("sort") || "");
    if (by) {
      address.searchParams.set("sort", `${params.context.table}:${by.colId}:${by.sort}`);
    } else if (table === params.context.table) {
      address.searchParams.delete("sort");
    }
    rewrite(address);
  }

  function rewrite(address) {
    const search = address.search.replace(/%3A/g, ":");
    window.history.replaceState(window.history.state, "", address.pathname + search + address.hash);
  }

  /* Paged tables are filtered by the server, after typing has paused. */
  let typing = null;
  function filterOnServer(api, column, text) {
    clearTimeout(typing);
    typing = setTimeout(async () => {
      const model = text ? { filterType: "text", type: "contains", filter: text } : null;
      await api.setColumnFilterModel(column, model);
      api.onFilterChanged();
    }, 300);
  }

  /* Show the number of matching rows. */
  function updateCount(place, api, text) {
    const count = place.querySelector(".tk-count");
    count.dataset.all = count.dataset.all || count.textContent;
    const left = api.getDisplayedRowCount().toLocaleString("en-US");
    count.textContent = text ? `${left} of ${count.dataset.all}` : count.dataset.all;
  }

  const observed = new WeakSet();
  function watch(place, api, box) {
    if (!observed.has(api)) {
      observed.add(api);
      api.addEventListener("modelUpdated", () => updateCount(place, api, box.value));
    }
  }

  document.addEventListener("input", (event) => {
    const place = event.target.closest && event.target.closest(".tk-filter") && event.target.closest(".tk-table");
    const api = apiOf(place);
    if (!api) {
      return;
    }
    watch(place, api, event.target);
    const column = api.getGridOption("context").filter;
    if (column) {
      filterOnServer(api, column, event.target.value);
    } else {
      openTree(api, event.target.value);
      api.setGridOption("quickFilterText", event.target.value);
    }
  });

  /* Show or hide the columns for which a table is too wide; the address names the table that shows them. */
  document.addEventListener("click", (event) => {
    const button = event.target.closest && event.target.closest(".tk-columns");
    const api = button && apiOf(button.closest(".tk-table"));
    if (!api) {
      return;
    }
    const shown = button.getAttribute("aria-pressed") !== "true";
    const wide = api.getColumns().filter((one) => one.getColDef().context === "too wide");
    api.setColumnsVisible(wide.map((one) => one.getColId()), shown);
    button.setAttribute("aria-pressed", String(shown));
    const { table } = api.getGridOption("context");
    const address = new URL(window.location.href);
    if (shown) {
      address.searchParams.set("wide", table);
    } else if (address.searchParams.get("wide") === table) {
      address.searchParams.delete("wide");
    }
    rewrite(address);
  });

  /* Rows of a tree below a closed row are hidden. */
  function treeShows(params) {
    return !params.data.tk_hidden;
  }

  /* Hide what is below closed rows; rows are in depth-first order, so that a parent comes before its children. */
  function hideClosed(api) {
    const shows = new Map();
    api.forEachNode(({ data }) => {
      const above = data.parent;
      data.tk_hidden = above !== null && above !== undefined && !shows.get(above);
      shows.set(data.node, !data.tk_hidden && data.tk_open);
    });
    api.onFilterChanged();
    api.refreshCells({ force: true });
  }

  function toggle(api, data) {
    [data.tk_open, data.tk_closed] = [data.tk_closed, data.tk_open];
    hideClosed(api);
  }

  /* Open all rows of a tree, so that a filter finds those below closed ones. */
  function openTree(api, text) {
    if (!text || !api.getGridOption("doesExternalFilterPass")) {
      return;
    }
    api.forEachNode(({ data }) => {
      [data.tk_open, data.tk_closed] = [data.tk_open || data.tk_closed, false];
    });
    hideClosed(api);
  }

  /* Enter follows the link of a cell, or opens or closes a row of a tree; Ctrl+C copies the full text of a cell. */
  document.addEventListener("keydown", (event) => {
    const cell = event.target.closest && event.target.closest(".tk-grid .ag-cell");
    if (!cell) {
      return;
    }
    const link = cell.querySelector("a[href], button.tk-tree-toggle");
    if (event.key === "Enter" && link && event.target !== link) {
      link.click();
    } else if (event.key === "c" && (event.ctrlKey || event.metaKey) && !String(window.getSelection())) {
      navigator.clipboard.writeText(cell.textContent);
    }
  });

  window.tracekit.grid = { bar, sorted, toggle, treeShows };
})();
