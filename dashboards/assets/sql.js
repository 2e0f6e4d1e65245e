/* SQL page: run, insert from the schema, history in the browser, axes of the chart in the address. */
"use strict";
(() => {
  const STORED = "tracekit-sql-history";
  const MOST = 30;
  const same = () => window.dash_clientside.no_update;
  let applied = null; // the query of the last address

  const editor = () => document.getElementById("sql-text");

  function say(text) {
    window.dash_clientside.set_props("sql-status", { children: text });
  }

  /* The address of this page with other parameters; empty ones are left out. */
  function withParameters(changes) {
    const address = new URL(window.location.href);
    for (const [name, value] of Object.entries(changes)) {
      if (value) { address.searchParams.set(name, value); } else { address.searchParams.delete(name); }
    }
    return address.pathname + address.search;
  }

  /* Write query and runs to the address, which shows the result; the same query again is asked for again. */
  function sqlRun(_clicks, over) {
    const sql = editor().value.trim();
    const longest = Number(document.getElementById("sql-run").dataset.longest);
    const long = [...sql].length > longest;
    say(long ? `The query has more than ${longest.toLocaleString("en-US")} characters.` : "");
    if (long) { return same(); }
    const words = new URLSearchParams(window.location.search);
    if (sql !== (words.get("sql") || "") || over !== (words.get("over") || "")) {
      window.tracekit.go(withParameters({ sql, over, sort: "" }));
    } else {
      window.dash_clientside.set_props({ type: "again", page: "sql", name: "result" }, { data: Date.now() });
    }
    return same();
  }

  /* Show the query of another address; what is being written stays while the query of the address is the same. */
  function sqlArrived(view) {
    if (!view || view.path !== "/sql") { return [same(), same()]; }
    const words = new URLSearchParams(view.search);
    const sql = words.get("sql") || "";
    const changed = sql !== applied;
    applied = sql;
    remember(sql);
    return [changed ? sql : same(), words.get("over") || ""];
  }

  /* Write the axes to the address; what the server chose by itself is not written. */
  function sqlAxes(x, y) {
    const changed = window.dash_clientside.callback_context.triggered.map((one) => one.prop_id);
    if (changed.length !== 1) { return same(); } // both are new
    const [axis, value] = changed[0].startsWith("sql-x") ? ["x", x] : ["y", y];
    if (new URLSearchParams(window.location.search).get(axis) !== value) {
      window.tracekit.go(withParameters({ [axis]: value }));
    }
    return same();
  }

  /* Insert at the cursor, so that it can be undone. */
  function insert(text) {
    const field = editor();
    field.focus();
    const before = field.value.slice(0, field.selectionStart);
    document.execCommand("insertText", false, (/[\w)]$/.test(before) ? " " : "") + text);
  }

  function history() {
    try {
      const stored = JSON.parse(window.localStorage.getItem(STORED));
      return Array.isArray(stored) ? stored.filter((one) => typeof one === "string").slice(0, MOST) : [];
    } catch { // not allowed, or not what this page wrote
      return [];
    }
  }

  function store(queries) {
    try {
      window.localStorage.setItem(STORED, JSON.stringify(queries));
    } catch { /* no room, or not allowed */ }
    list();
  }

  function remember(sql) {
    if (sql) { store([sql, ...history().filter((one) => one !== sql)].slice(0, MOST)); }
  }

  function list() {
    const place = document.getElementById("sql-history");
    if (!place) { return; }
    const items = history().map((sql) => {
      const item = document.createElement("li");
      const link = document.createElement("a");
      link.href = withParameters({ sql, chart: "", x: "", y: "", sort: "" });
      link.className = "tk-go tk-link";
      link.textContent = sql.replace(/\s+/g, " ");
      link.title = sql;
      item.append(link);
      return item;
    });
    const queries = document.createElement("ol");
    queries.append(...items);
    const clear = document.createElement("button");
    Object.assign(clear, { type: "button", className: "tk-tool", textContent: "Clear" });
    clear.addEventListener("click", () => store([]));
    place.replaceChildren(...(items.length ? [queries, clear] : ["No query has been run in this browser."]));
  }

  document.addEventListener("toggle", (event) => {
    if (event.target.id === "sql-history-fold") { list(); }
  }, true); // it does not bubble

  document.addEventListener("click", (event) => {
    const button = event.target.closest ? event.target.closest(".tk-sql-insert") : null;
    if (button) { insert(button.dataset.insert); }
  });

  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && event.target.id === "sql-text") {
      event.preventDefault();
      document.getElementById("sql-run").click();
    }
  });

  window.dash_clientside = window.dash_clientside || {};
  window.dash_clientside.tracekit = Object.assign(window.dash_clientside.tracekit || {}, { sqlRun, sqlArrived, sqlAxes });
})();
