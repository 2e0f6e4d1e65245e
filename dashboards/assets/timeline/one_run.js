/* State of the timeline of one run, with the panels beside and below its lanes. */
"use strict";
window.tracekit = window.tracekit || {};
window.tracekit.timeline = window.tracekit.timeline || {};
(function (tl) {
  tl.OneRun = class extends tl.App {
    static LABEL = "Timeline. W, A, S and D zoom and pan; period and comma step through intervals with the same name; question mark lists all shortcuts.";

    constructor(element, source) {
      super(element, source);
      this.chosen = null;
      this.wire = new tl.Wire(source.run);
      this.loading = new tl.Loading(this);
    }

    async open() {
      this.wire.aligned = tl.readAddress().clocks;
      const info = await this.loading.ask();
      this.loading.take(info);
      tl.build(this, info);
      this.watch(this.parts.right, this.controls); // controls may take another line
      window.addEventListener("resize", () => this.layout.apply(), { signal: this.ending });
      this.applyAddress(tl.readAddress(), { first: true });
      this.resize();
      this.table.open();
      if (!info.causes) this.loading.waitForCauses();
      this.clocks.load();
    }

    close() {
      if (this.alive && this.controls) this.controls.remove();
      super.close();
    }

    fixed(id) { return this.queries.layers.get(id); }

    /** Range and lanes of the table: the marked range or the view; its lanes or all visible ones. */
    scope() {
      const { from, to } = this.brush || this.target || this.scale;
      const lanes = (this.brush && this.brush.lanes) || this.lanes.shown;
      return { from: Math.floor(from), to: Math.ceil(to), lanes: tl.ranges(lanes) };
    }

    changed() {
      super.changed();
      this.table.later();
    }

    resize() {
      super.resize();
      this.table.refresh();
    }

    fitHeight() { this.layout.apply(); }

    themeChanged() {
      super.themeChanged();
      this.table.refresh();
    }

    arrange(what, key) {
      if (what === "edit" || what === "remove") this.queries[what](key);
      else super.arrange(what, key);
    }

    layoutChanged() {
      this.arranging.show(this.lanes);
      super.layoutChanged();
    }

    /** Apply the state in an address; without a range, a history entry shows the whole capture. */
    applyAddress(state, { first = false, back = false } = {}) {
      const { lanes } = this;
      if (state.clocks !== this.wire.aligned) {
        this.wire.aligned = state.clocks;
        this.clocks.update();
        this.loading.again().then(() => this.alive && this.applyAddress(state, { back }));
        return;
      }
      lanes.restore(state);
      this.queries.restore(state.queries);
      this.off = new Set(state.off);
      this.brush = state.brush;
      this.table.restore(state);
      this.heading.stale = true;
      this.target = null;
      const ranged = state.from !== null || state.to !== null;
      const known = Boolean(this.chosen && state.row && this.chosen.table === state.row.table && this.chosen.row === state.row.row);
      if (ranged || back || known || !state.row) this.scale.setRange(state.from ?? this.scale.min, state.to ?? this.scale.max);
      this.layoutChanged();
      this.parts.scroller.scrollTop = state.top;
      const searched = this.search.set(state.query);
      const zoom = state.row && !ranged && !back ? "near" : first ? "lane" : null;
      if (first && state.go) searched.then(() => this.moves.arrive(state.go));
      else if (!known) this.moves.select(state.row, { zoom, silent: true });
    }

    setBrush(brush) {
      super.setBrush(brush);
      if (brush && brush.active) return;
      this.table.later();
      this.address.replaceEntry();
    }

    /** Highlight what matches a search; `name` if that is one whole name. Null for no search. */
    setMatching(matching, name) {
      Object.assign(this, { matching, highlight: name });
      this.stage.redraw();
      this.table.refresh();
    }

    row(table, row) { return this.queries.row(table, row) || this.wire.row(table, row); }
    select(row, how) { return this.moves.select(row && { table: row.table, row: row.row }, how || {}); }
    step(by, what) { return this.moves.step(by, what); }
    fit() { this.moves.fit(); }
    clear() { this.moves.clear(); }
    markView() { this.setBrush({ from: Math.floor(this.scale.from), to: Math.ceil(this.scale.to), lanes: null }); }

    /** Keys that act once, besides those of zooming and panning. */
    get keys() {
      return {
        f: () => this.fit(), 0: () => this.whole(), ".": () => this.step(1, "name"), ",": () => this.step(-1, "name"),
        ">": () => this.step(1, "lane"), "<": () => this.step(-1, "lane"), m: () => this.markView(), i: () => this.layout.toggle("hidden"), v: () => this.layout.toggle("full"), l: () => this.layout.toggle("table"), t: () => this.notes.focus(), c: () => this.arrange("collapse"), n: (event) => this.search.step(event.shiftKey ? -1 : 1), "/": () => this.search.focus(),
        Escape: () => this.clear(),
      };
    }

    /** Select the longest interval of a table row and search for its name from the longest on, or end that search. */
    async highlightName(row) {
      if (this.highlight === row.name) { this.search.clear(); return; }
      await this.select({ table: row.max.table, row: row.max.row }, { zoom: "near" });
      await this.search.set(row.category.startsWith("idle") ? { q: row.category, mode: "category", longest: true } : { q: row.name, mode: "name", longest: true });
    }
  };
})(window.tracekit.timeline);
