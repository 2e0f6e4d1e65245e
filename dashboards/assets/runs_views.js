/* Views of the run list: filters, order and columns in the address, and under names in the browser. */
"use strict";
(() => {
  const STORED = "tracekit-runs-views";
  const MOST = 50;
  const PARAMETERS = ["find", "sweeps", "sort", "filter", "columns"];
  let applied = null; // the grid that shows the view of the address
  let fields = { find: "", sweeps: "" }; // text and switch beside it

  const byId = (id) => document.getElementById(id);

  function gridApi() {
    try {
      return byId("runs-grid") && window.dash_ag_grid.getApi("runs-grid");
    } catch { // not initialized yet
      return null;
    }
  }

  function parsed(text) {
    try {
      return JSON.parse(text);
    } catch {
      return null;
    }
  }

  /* Columns that the page shows without a view: those that fit. */
  const usual = (api) => api.getColumns().filter((one) => !one.getColDef().hide).map((one) => one.getColId());

  /* Columns and their order as in the address; without them, those of the page. */
  function columnState(api, words) {
    const every = api.getColumns().map((one) => one.getColId());
    const listed = (words.get("columns") || "").split(",").filter((id) => every.includes(id));
    const shown = listed.length ? listed : usual(api);
    const order = new Map((words.get("sort") || "").split(",").map((one, at) => [one.split(":")[0], [one.split(":")[1], at]]));
    const sorted = (colId) => {
      const [sort, sortIndex] = order.get(colId) || [];
      return sort === "asc" || sort === "desc" ? { sort, sortIndex } : { sort: null };
    };
    const rest = every.filter((id) => !shown.includes(id));
    return [
      ...shown.map((colId) => ({ colId, hide: false, ...sorted(colId) })),
      ...rest.map((colId) => ({ colId, hide: true, ...sorted(colId) })),
    ];
  }

  /* Show the view of the address. */
  function apply(api) {
    const words = new URLSearchParams(window.location.search);
    api.applyColumnState({ state: columnState(api, words), applyOrder: true });
    api.setFilterModel(parsed(words.get("filter") || "null"));
  }

  function parameters(api) {
    const every = api.getColumns().map((one) => one.getColId());
    const shown = api.getAllDisplayedColumns().map((one) => one.getColId()).filter((id) => every.includes(id));
    const sorted = api.getColumnState().filter((one) => one.sort).sort((a, b) => a.sortIndex - b.sortIndex);
    const filter = api.getFilterModel();
    return {
      ...fields,
      sort: sorted.map((one) => `${one.colId}:${one.sort}`).join(","),
      filter: Object.keys(filter).length ? JSON.stringify(filter) : "",
      columns: shown.join() === usual(api).join() ? "" : shown.join(),
    };
  }

  /* The address of this page with another view; the rest, such as the run, stays. */
  function addressOf(view) {
    const address = new URL(window.location.href);
    PARAMETERS.forEach((name) => address.searchParams.delete(name));
    PARAMETERS.filter((name) => view[name]).forEach((name) => address.searchParams.set(name, view[name]));
    return address.pathname + address.search;
  }

  /* Write the view to the address, without notifying Dash, which would recompute the page. */
  function write(api) {
    window.history.replaceState(window.history.state, "", addressOf(parameters(api)));
  }

  /* Show the view of the address in a new grid, again when columns come, which it may name; then follow the user. */
  function attach(api) {
    if (api === applied) { return; }
    applied = api;
    api.addEventListener("newColumnsLoaded", () => apply(api));
    const changed = ({ source }) => { if (source !== "api" && source !== "gridOptionsChanged") { write(api); } };
    ["sortChanged", "filterChanged", "columnMoved"].forEach((name) => api.addEventListener(name, changed));
    apply(api);
  }

  /* After the fields, or the address by a picker, have changed. */
  function runsArrived(_view, text, cells) {
    fields = { find: text || "", sweeps: cells ? "1" : "" };
    const api = gridApi();
    if (api && api === applied) { write(api); } else { window.dash_ag_grid.getApiAsync("runs-grid").then(attach, () => {}); }
    return window.dash_clientside.no_update;
  }

  function views() {
    try {
      const stored = JSON.parse(window.localStorage.getItem(STORED));
      return Array.isArray(stored) ? stored.filter((one) => one && typeof one.name === "string" && one.view) : [];
    } catch { // not allowed, or not what this page wrote
      return [];
    }
  }

  function store(all) {
    try {
      window.localStorage.setItem(STORED, JSON.stringify(all.slice(0, MOST)));
    } catch { /* no room, or not allowed */ }
    list();
  }

  function save() {
    const [field, api] = [byId("runs-view-name"), gridApi()];
    const name = field.value.trim().slice(0, 60);
    if (!name || !api) { field.focus(); return; }
    store([{ name, view: parameters(api) }, ...views().filter((one) => one.name !== name)]);
  }

  function show(view) {
    window.history.pushState(window.history.state, "", addressOf(view));
    arrive();
  }

  function arrive() {
    const [api, words] = [gridApi(), new URLSearchParams(window.location.search)];
    if (!api) { return; }
    fields = { find: words.get("find") || "", sweeps: words.get("sweeps") || "" };
    window.dash_clientside.set_props("runs-find", { value: fields.find });
    window.dash_clientside.set_props("runs-cells", { checked: fields.sweeps === "1" });
    apply(api);
  }

  function button(text, label, act) {
    const made = document.createElement("button");
    Object.assign(made, { type: "button", textContent: text, className: "tk-view-button" });
    made.setAttribute("aria-label", label);
    made.addEventListener("click", act);
    return made;
  }

  function list() {
    const items = [{ name: "Default", view: {} }, ...views()].map(({ name, view }, at) => {
      const item = document.createElement("li");
      item.append(button(name, `Show ${name}`, () => { show(view); byId("runs-views-fold").open = false; }));
      if (at) {
        item.append(button("×", `Delete ${name}`, () => store(views().filter((one) => one.name !== name))));
      }
      return item;
    });
    byId("runs-views").replaceChildren(...items);
  }

  function listColumns() {
    const api = gridApi();
    const items = (api ? api.getColumns() : []).map((column) => {
      const [item, label, box] = ["li", "label", "input"].map((name) => document.createElement(name));
      Object.assign(box, { type: "checkbox", checked: column.isVisible() });
      box.addEventListener("change", () => { api.setColumnsVisible([column.getColId()], box.checked); write(api); });
      label.append(box, column.getColDef().headerName);
      item.append(label);
      return item;
    });
    byId("runs-columns").replaceChildren(...items);
  }

  document.addEventListener("toggle", (event) => {
    if (event.target.open && event.target.id === "runs-views-fold") { list(); }
    if (event.target.open && event.target.id === "runs-columns-fold") { listColumns(); }
  }, true); // it does not bubble

  document.addEventListener("click", (event) => {
    if (event.target.id === "runs-view-save") { save(); }
    document.querySelectorAll("details.tk-fold[open]").forEach((fold) => {
      if (!fold.contains(event.target) && event.target.isConnected) { fold.open = false; }
    });
  });

  document.addEventListener("keydown", (event) => {
    const fold = event.target.closest && event.target.closest("details.tk-fold[open]");
    if (event.key === "Escape" && fold) { fold.open = false; fold.querySelector("summary").focus(); }
    if (event.key === "Enter" && event.target.id === "runs-view-name") { save(); }
  });

  window.addEventListener("popstate", arrive);

  window.dash_clientside = window.dash_clientside || {};
  window.dash_clientside.tracekit = Object.assign(window.dash_clientside.tracekit || {}, { runsArrived });
})();
