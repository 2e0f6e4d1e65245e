/* Layout that the browser remembers: the panel beside the lanes, the table below them, and the full window. */
"use strict";
window.tracekit = window.tracekit || {};
window.tracekit.timeline = window.tracekit.timeline || {};
(function (tl) {
  const KEPT = "tracekit.timeline.side";
  const [LEAST, USUAL, STEP] = [260, 360, 24];
  const FULL = "tk-full-window";

  /** The remembered state; nothing if the browser keeps nothing. */
  function kept() {
    try {
      return JSON.parse(window.localStorage.getItem(KEPT)) || {};
    } catch {
      return {};
    }
  }

  tl.Layout = class {
    constructor(app) {
      const { width, hidden, table, full } = kept();
      Object.assign(this, { app, width: Number.isFinite(width) ? width : USUAL, hidden: hidden === true, table, full: full === true });
      this.edge = tl.el("div", {
        class: "tkl-edge", role: "separator", tabindex: "0", "aria-orientation": "vertical", "aria-label": "Width of the panel", "aria-controls": "timeline-side",
        title: "Drag to resize the panel; double-click to hide it (I)",
        pointerdown: (event) => this.#grab(event), pointermove: (event) => this.#drag(event), pointerup: () => { this.grip = null; this.#keep(); },
        dblclick: () => this.toggle("hidden"), keydown: (event) => this.#key(event),
      });
      app.ending.addEventListener("abort", () => document.documentElement.classList.remove(FULL));
    }

    get most() { return Math.max(LEAST, Math.round(this.app.element.clientWidth * 0.6)); }

    /** Switch the panel (`hidden`), the table (`table`) or the full window (`full`). */
    toggle(part) {
      this[part] = part === "table" ? !this.shownTable : !this[part];
      this.apply();
      this.#keep();
    }

    /** Whether the table is shown: as chosen, else where all lanes leave room for it. */
    get shownTable() { return typeof this.table === "boolean" ? this.table : this.app.stage.leavesRoom; }

    reveal() { if (this.hidden) this.toggle("hidden"); }

    apply() {
      const { app, edge } = this;
      const { element, parts, table } = app;
      document.documentElement.classList.toggle(FULL, this.full);
      app.stage.fitHeight();
      element.style.setProperty("--tkl-side", `${this.width}px`);
      element.classList.toggle("tkl-without-side", this.hidden);
      element.classList.toggle("tkl-without-table", !this.shownTable);
      table.fold.setAttribute("aria-expanded", String(this.shownTable));
      parts.full.setAttribute("aria-pressed", String(this.full));
      parts.panel.setAttribute("aria-pressed", String(!this.hidden));
      edge.setAttribute("aria-valuenow", this.hidden ? "0" : String(this.width));
      edge.setAttribute("aria-valuemin", "0");
      edge.setAttribute("aria-valuemax", String(this.most));
    }

    #resize(width) {
      this.width = Math.round(Math.min(Math.max(width, LEAST), this.most));
      this.hidden = false;
      this.apply();
    }

    #keep() {
      const { width, hidden, table, full } = this;
      try {
        window.localStorage.setItem(KEPT, JSON.stringify({ width, hidden, table, full }));
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
      if (event.key === "Enter") this.toggle("hidden");
      else if (by) { this.#resize(this.width + by); this.#keep(); } else return;
      event.preventDefault();
      event.stopPropagation();
    }
  };
})(window.tracekit.timeline);
