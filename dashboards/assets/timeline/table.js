/* Table of the visible or marked range, grouped by name. */
"use strict";
window.tracekit = window.tracekit || {};
window.tracekit.timeline = window.tracekit.timeline || {};
(function (tl) {
  const FIRST = 30;
  const DEBOUNCE_MS = 280;
  const OTHERS = 470;
  const LETTER = 7;
  const COLUMNS = [
    { key: "name", title: "Name", text: true }, { key: "category", title: "Category", text: true },
    { key: "count", title: "Count", show: tl.count }, { key: "sum_ns", title: "Sum", show: tl.time },
    { key: "mean_ns", title: "Mean", show: tl.time }, { key: "max_ns", title: "Max", show: tl.time },
  ];

  tl.Table = class {
    constructor(app, element) {
      Object.assign(this, { app, element, sort: { key: "sum_ns", down: true }, all: false, rows: [], requestedScope: "" });
      this.later = tl.later(DEBOUNCE_MS, () => this.#ask());
      this.title = tl.el("span", {}, "In view");
      this.fold = tl.el("button", { type: "button", class: "tkl-unfold", title: "Show or hide the table (L)", click: () => app.layout.toggle("table") }, this.title);
      this.note = tl.el("span", { class: "tkl-hint" }, "");
      this.csv = tl.el("a", { class: "tkl-button", download: "" }, "CSV");
      this.zoom = tl.button("Zoom to the marked range", { click: () => app.fit(), hidden: "" }, "Zoom");
      this.clear = tl.button("Clear the marked range (Esc)", { click: () => app.setBrush(null), hidden: "" }, "Clear");
      this.body = tl.el("tbody", {});
      this.headings = COLUMNS.map((column) => this.#heading(column));
      this.more = tl.button("Show all", { click: () => { this.all = true; this.#fill(); app.address.replaceEntry(); }, hidden: "" }, "Show all");
      this.element.replaceChildren(
        tl.el("div", { class: "tkl-detail-head" }, tl.el("h2", { class: "tkl-subtitle" }, this.fold), this.note, this.zoom, this.clear, this.csv),
        tl.el("div", { class: "tkl-scrolled", tabindex: "0", role: "region", "aria-label": "Intervals in view, by name" },
          tl.el("table", { class: "tkl-table" }, tl.el("thead", {}, tl.el("tr", {}, ...this.headings)), this.body), this.more),
      );
    }

    #heading({ key, title, text }) {
      const button = tl.el("button", { type: "button", class: "tkl-sort", click: () => this.#order(key) }, title);
      const cell = tl.el("th", { scope: "col", class: text ? null : "tkl-number", "data-key": key }, button);
      if (key === "sum_ns") cell.setAttribute("aria-sort", "descending");
      return cell;
    }

    #order(key) {
      const column = COLUMNS.find((one) => one.key === key);
      this.restore({ sort: { key, down: this.sort.key === key ? !this.sort.down : !column.text }, all: this.all });
      this.app.address.replaceEntry();
    }

    get sorted() { return this.sort.key !== "sum_ns" || !this.sort.down; }

    /** Apply a sort order, or the default one, and whether all rows are shown. */
    restore({ sort, all }) {
      const known = sort && COLUMNS.some((one) => one.key === sort.key);
      const { key } = this.sort = known ? sort : { key: "sum_ns", down: true };
      this.all = Boolean(all);
      for (const cell of this.headings) {
        if (cell.dataset.key === key) cell.setAttribute("aria-sort", this.sort.down ? "descending" : "ascending");
        else cell.removeAttribute("aria-sort");
      }
      this.#fill();
    }

    /** Ask for the first rows; later changes are waited for. */
    open() {
      this.later.cancel();
      return this.#ask();
    }

    async #ask() {
      const { app } = this;
      const words = app.scope();
      const now = JSON.stringify([words, app.wire.aligned]);
      if (now === this.requestedScope) { this.#describe(words); return; }
      if (this.control) this.control.abort();
      this.control = new AbortController();
      this.element.setAttribute("aria-busy", "true");
      try {
        const { rows, total, categories } = await app.wire.json("summary", words, this.control.signal);
        Object.assign(this, { rows, total, requestedScope: now });
        this.#fill();
        app.shares.show(categories, { ...words, marked: Boolean(app.brush) });
        this.#describe(words);
      } catch (error) {
        if (error.name !== "AbortError") this.body.replaceChildren(tl.el("tr", {}, tl.el("td", { colspan: "6" }, error.message)));
        else return;
        app.shares.settle();
      }
      this.element.removeAttribute("aria-busy");
    }

    #describe({ from, to, lanes }) {
      const { brush, wire } = this.app;
      this.title.textContent = brush ? "In the marked range" : "In view";
      const part = brush && brush.lanes ? `, ${tl.count(brush.lanes.length)} ${brush.lanes.length === 1 ? "lane" : "lanes"}` : "";
      this.note.textContent = `${tl.time(to - from)}${part} · ${tl.count(this.total)} ${this.total === 1 ? "name" : "names"}`;
      this.zoom.hidden = this.clear.hidden = !brush;
      const query = new URLSearchParams({ from, to, lanes, ...(wire.aligned ? { clocks: "aligned" } : {}) });
      this.csv.href = `${wire.base}/summary.csv?${query}`;
    }

    #fill() {
      const { key, down } = this.sort;
      const order = (a, b) => (typeof a[key] === "string" ? a[key].localeCompare(b[key]) : a[key] - b[key]) * (down ? -1 : 1);
      const rows = [...this.rows].sort(order);
      const shown = this.all ? rows : rows.slice(0, FIRST);
      this.letters = Math.max(18, Math.floor((this.element.clientWidth - OTHERS) / LETTER));
      const ids = new Map(this.app.colors.names.map((name, id) => [name, id]));
      this.body.replaceChildren(...shown.map((row) => this.#row(row, ids)));
      if (!rows.length) this.body.replaceChildren(tl.el("tr", {}, tl.el("td", { colspan: "6", class: "tkl-hint" }, "No intervals in this time range on the visible lanes.")));
      this.more.hidden = shown.length === rows.length;
      this.more.textContent = `Show all ${tl.count(rows.length)}`;
    }

    #row(row, ids) {
      const name = tl.el("button", { type: "button", class: "tkl-link", title: tl.clean(row.name), "aria-label": tl.clean(row.name.slice(0, 400)), click: () => this.app.highlightName(row) },
        tl.el("span", { class: "tkl-link-name" }, tl.cut(tl.brief(row.name), this.letters)));
      const cells = COLUMNS.slice(2).map(({ key, show }) => tl.el("td", { class: "tkl-number", title: key === "count" ? null : `${tl.count(Math.round(row[key]))} ns` }, show(row[key])));
      const made = tl.el("tr", { class: this.app.highlight === row.name ? "tkl-highlighted" : null },
        tl.el("td", {}, name), tl.el("td", { class: "tkl-category" }, this.app.colors.swatch(ids.get(row.category)), row.category.replaceAll("_", " ")), ...cells);
      return made;
    }

    /** Repaint after a change of colors or highlight. */
    refresh() { this.#fill(); }
  };
})(window.tracekit.timeline);
