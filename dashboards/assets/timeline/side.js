/* The panel beside the lanes: its width, whether it is shown, and the range by category. */
"use strict";
window.tracekit = window.tracekit || {};
window.tracekit.timeline = window.tracekit.timeline || {};
(function (tl) {
  const KEPT = "tracekit.timeline.side";
  const [LEAST, USUAL, STEP] = [260, 360, 24];

  /** The remembered width and state; nothing if the browser keeps nothing. */
  function kept() {
    try {
      return JSON.parse(window.localStorage.getItem(KEPT)) || {};
    } catch {
      return {};
    }
  }

  tl.Side = class {
    constructor(app, element) {
      const { width, hidden } = kept();
      Object.assign(this, { app, element, width: Number.isFinite(width) ? width : USUAL, hidden: hidden === true });
      this.edge = tl.el("div", {
        class: "tkl-edge", role: "separator", tabindex: "0", "aria-orientation": "vertical", "aria-label": "Width of the panel", "aria-controls": "timeline-side",
        title: "Drag to resize the panel; double-click to hide it (I)",
        pointerdown: (event) => this.#grab(event), pointermove: (event) => this.#drag(event), pointerup: () => { this.grip = null; this.#keep(); },
        dblclick: () => this.toggle(), keydown: (event) => this.#key(event),
      });
      this.#apply();
    }

    get most() { return Math.max(LEAST, Math.round(this.app.element.clientWidth * 0.6)); }

    toggle() {
      this.hidden = !this.hidden;
      this.#apply();
      this.#keep();
    }

    reveal() { if (this.hidden) this.toggle(); }

    #resize(width) {
      this.width = Math.round(Math.min(Math.max(width, LEAST), this.most));
      this.hidden = false;
      this.#apply();
    }

    #apply() {
      const { app, edge } = this;
      app.element.style.setProperty("--tkl-side", `${this.width}px`);
      app.element.classList.toggle("tkl-without-side", this.hidden);
      edge.setAttribute("aria-valuenow", this.hidden ? "0" : String(this.width));
      edge.setAttribute("aria-valuemin", "0");
      edge.setAttribute("aria-valuemax", String(this.most));
    }

    #keep() {
      try {
        window.localStorage.setItem(KEPT, JSON.stringify({ width: this.width, hidden: this.hidden }));
      } catch { /* the browser keeps nothing */ }
    }

    #grab(event) {
      if (event.button !== 0) return;
      event.preventDefault();
      this.edge.setPointerCapture(event.pointerId);
      this.grip = { x: event.clientX, width: this.hidden ? 0 : this.width };
    }

    #drag({ clientX }) {
      if (this.grip && Math.abs(clientX - this.grip.x) > 3) this.#resize(this.grip.width + this.grip.x - clientX);
    }

    #key(event) {
      const by = { ArrowLeft: STEP, ArrowRight: -STEP }[event.key];
      if (event.key === "Enter") this.toggle();
      else if (by) { this.#resize(this.width + by); this.#keep(); } else return;
      event.preventDefault();
      event.stopPropagation();
    }
  };

  /** Count, total time and share of the range by category. */
  tl.Shares = class {
    constructor(app, element) {
      Object.assign(this, { app, element });
      this.title = tl.el("h2", { class: "tkl-subtitle" }, "In view, by category");
      this.body = tl.el("tbody", {});
      const heads = [["Category", ""], ["Count", "intervals that touch the range"], ["Total", "sum of their parts in the range"], ["Share", "total over the length of the range; above 100% if intervals overlap or are nested"]];
      element.append(this.title, tl.el("table", { class: "tkl-table" },
        tl.el("thead", {}, tl.el("tr", {}, ...heads.map(([text, title], place) => tl.el("th", { scope: "col", title: title || null, class: place ? "tkl-number" : null }, text)))), this.body));
    }

    show(categories, { from, to, marked }) {
      const { colors } = this.app;
      const ids = new Map(colors.names.map((name, id) => [name, id]));
      const title = marked ? "In the marked range, by category" : "In view, by category";
      this.title.textContent = `${title} (${tl.time(to - from)})`;
      this.element.setAttribute("aria-label", title);
      this.body.replaceChildren(...categories.map(({ category, count, sum_ns: total, share }) => tl.el("tr", {},
        tl.el("td", {}, this.#link(category, ids.get(category))),
        tl.el("td", { class: "tkl-number" }, tl.count(count)),
        tl.el("td", { class: "tkl-number", title: `${tl.count(total)} ns` }, tl.time(total)),
        tl.el("td", { class: "tkl-number" }, tl.share(share)))));
      if (!categories.length) this.body.replaceChildren(tl.el("tr", {}, tl.el("td", { colspan: "4", class: "tkl-hint" }, "No intervals in this time range on the visible lanes.")));
    }

    #link(category, id) {
      const name = category.replaceAll("_", " ");
      return tl.el("button", { type: "button", class: "tkl-link", title: `Search for ${name}, the longest first`, click: () => this.app.search.set({ q: category, mode: "category", longest: true }) },
        tl.el("span", { class: "tkl-link-name" }, this.app.colors.swatch(id), name));
    }
  };
})(window.tracekit.timeline);
