/* What happens in and around a grid: names for assistive technology, quick filter, sort in the address, copying. */
(() => {
  "use strict";
  window.tracekit = window.tracekit || {};
  const apis = new WeakMap();

  function bar(params) {
    if (typeof params.value !== "number") {
      return null;
    }
    const width = Math.max(0, Math.min(1, params.value)) * 100;
    return { "--tk-share": `${width.toFixed(2)}%` };
  }

  function wrapper(api) {
    return document.querySelector(`[grid-id="${CSS.escape(api.getGridId())}"]`);
  }

  function ready(params, label) {
    const root = wrapper(params.api);
    if (!root) {
      return;
    }
    const grid = root.querySelector('[role="grid"], [role="treegrid"]');
    if (grid) {
      grid.setAttribute("aria-label", label);
    }
    const place = root.closest(".tk-table");
    if (place) {
      apis.set(place, params.api);
      resort(params);
    }
  }

  /* The address may say another sort than when the page was made: it changes without the page being made anew. */
  function resort(params) {
    const asked = new URLSearchParams(window.location.search).get("sort") || "";
    const [table, column, order] = split(asked);
    const now = params.api.getColumnState().find((one) => one.sort);
    if (table !== params.context.table || (now && now.colId === column && now.sort === order)) {
      return;
    }
    params.api.applyColumnState({ state: [{ colId: column, sort: order }], defaultState: { sort: null } });
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
    const api = place && apis.get(place);
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

  window.tracekit.grid = { bar, ready, sorted };
})();
