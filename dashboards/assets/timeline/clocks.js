/* Clocks of ranks: a switch that aligns them by matched collectives, and their offsets. The server shifts the lanes. */
"use strict";
window.tracekit = window.tracekit || {};
window.tracekit.timeline = window.tracekit.timeline || {};
(function (tl) {
  const HEADS = [["Rank", ""], ["Offset", "clock of the rank minus that of the reference, subtracted from its times"], ["±", "median distance of a collective from the offset"], ["Collectives", "matched collectives that the offset is the median of"]];

  tl.Clocks = class {
    constructor(app, element) {
      Object.assign(this, { app, element });
      this.element.hidden = true;
      this.button = tl.button("Align the clocks of ranks, so that matched collectives end together", { "aria-pressed": "false", hidden: app.info.several_ranks ? null : "", disabled: "", click: () => this.toggle() }, "Align clocks");
    }

    /** Ask for the offsets; without any, nothing is offered, and a link that wants them is told so. */
    async load() {
      const { app } = this;
      const found = app.info.several_ranks ? await app.wire.json("clocks", {}, app.ending).catch(() => null) : null;
      if (!app.alive) return;
      if (found && found.ranks.length) { this.#show(found); return; }
      this.button.hidden = true;
      if (app.wire.aligned) {
        app.wire.aligned = false;
        app.address.replaceEntry();
        app.say("Clocks are as recorded: no collectives of several ranks are matched");
      }
    }

    toggle() {
      const { app } = this;
      app.address.pushEntry();
      app.wire.aligned = !app.wire.aligned;
      this.update();
      app.loading.again();
    }

    /** Show whether clocks are aligned. */
    update() {
      const { aligned } = this.app.wire;
      this.button.setAttribute("aria-pressed", String(aligned));
      if (!this.note) return;
      this.note.textContent = aligned
        ? `Aligned: matched collectives end together. Times are by the clock of rank ${this.reference}; the offset is subtracted from times of other ranks.`
        : "As recorded. Align clocks subtracts these offsets.";
      this.fold.open = aligned;
    }

    #show({ ranks, without }) {
      const time = (ns) => `${ns > 0 ? "+" : ns < 0 ? "−" : ""}${tl.time(Math.abs(ns))}`;
      const row = ({ rank, offset_ns: offset, spread_ns: spread, collectives }, place) => tl.el("tr", {},
        tl.el("td", {}, tl.count(rank)),
        tl.el("td", { class: "tkl-number", title: `${tl.count(offset)} ns` }, place ? time(offset) : "reference"),
        tl.el("td", { class: "tkl-number" }, place ? tl.time(spread) : ""),
        tl.el("td", { class: "tkl-number" }, place ? tl.count(collectives) : ""));
      this.reference = ranks[0].rank;
      this.note = tl.el("p", { class: "tkl-hint" });
      const head = tl.el("tr", {}, ...HEADS.map(([text, title], place) => tl.el("th", { scope: "col", title: title || null, class: place ? "tkl-number" : null }, text)));
      const left = without.length ? tl.el("p", { class: "tkl-hint" }, `Without a matched collective, as recorded: ${without.length === 1 ? "rank" : "ranks"} ${tl.ranges(without)}.`) : null;
      this.fold = tl.el("details", {}, tl.el("summary", {}, "Offsets of ranks"), tl.el("table", { class: "tkl-table" }, tl.el("thead", {}, head), tl.el("tbody", {}, ...ranks.map(row))), left);
      this.element.replaceChildren(tl.el("h2", { class: "tkl-subtitle" }, "Clocks of ranks"), this.note, this.fold);
      this.element.hidden = this.button.disabled = false;
      this.update();
    }
  };
})(window.tracekit.timeline);
