/* State of the timeline; notifies all other parts of changes. */
"use strict";
window.tracekit = window.tracekit || {};
window.tracekit.timeline = window.tracekit.timeline || {};
(function (tl) {
  tl.App = class {
    constructor(element, source) {
      Object.assign(this, { element, source, off: new Set(), brush: null, selected: null, chosen: null, hover: null, pointer: null, highlight: null });
      this.control = new AbortController();
      this.ending = this.control.signal;
      this.alive = true;
      this.wire = new tl.Wire(source.run);
      this.stage = new tl.Stage(this);
      this.moves = new tl.Moves(this);
      this.loading = new tl.Loading(this);
    }

    async open() {
      this.wire.aligned = tl.readAddress().clocks;
      const info = await this.loading.ask();
      this.loading.take(info);
      this.lanes = new tl.Lanes(info.lanes);
      tl.build(this, info);
      this.#watch();
      this.data = new tl.Data(this.wire, this.scale, {
        lanes: () => this.wanted(), always: this.heading.lanes.map((lane) => lane.id), fixed: (id) => this.queries.layers.get(id),
        arrived: (answer) => this.arrived(answer), failed: (error) => this.stage.trouble(error.message),
      });
      this.applyAddress(tl.readAddress(), { first: true });
      this.resize();
      this.table.open();
      if (!info.causes) this.loading.waitForCauses();
      this.clocks.load();
    }

    #watch() {
      this.resizing = new ResizeObserver(() => (this.element.isConnected ? this.resize() : this.close()));
      this.resizing.observe(this.parts.right);
      this.theming = new MutationObserver(() => this.themeChanged());
      this.theming.observe(document.documentElement, { attributes: true, attributeFilter: ["data-mantine-color-scheme"] });
      window.addEventListener("resize", () => this.layout.apply(), { signal: this.ending });
    }

    close() {
      if (!this.alive) return;
      this.alive = false;
      this.control.abort();
      if (this.data) this.data.close();
      if (this.resizing) this.resizing.disconnect();
      if (this.theming) this.theming.disconnect();
      if (this.controls) this.controls.remove();
      this.element.replaceChildren();
    }

    /** Lanes to ask for. */
    wanted() { return this.lanes.visible(this.stage.top - 40, this.stage.height + 80).filter(tl.isOfRun); }

    /** Range and lanes of the table: the marked range or the view; its lanes or all visible ones. */
    scope() {
      const { from, to } = this.brush || this.target || this.scale;
      const lanes = (this.brush && this.brush.lanes) || this.lanes.shown;
      return { from: Math.floor(from), to: Math.ceil(to), lanes: tl.ranges(lanes) };
    }

    paintedWith() {
      const { scale, data, colors, off, steps } = this;
      return { scale, data, colors, off, steps, matching: this.matching };
    }

    rowAt(y) {
      const { pinsHeight, pins, rows } = this.lanes;
      return y < pinsHeight ? this.lanes.at(pins, y) : this.lanes.at(rows, y - pinsHeight + this.stage.top);
    }

    yOf(place) { return place.pinned ? place.y : this.lanes.pinsHeight + place.y - this.stage.top; }
    lanesBetween(top, bottom) {
      const inside = (row) => row.kind === "lane" && tl.isOfRun(row.lane.id) && !tl.hasLevels(row.lane) && this.yOf(row) < bottom && this.yOf(row) + row.h > top;
      return [...this.lanes.pins, ...this.lanes.rows].filter(inside).map((row) => row.lane.id);
    }

    /** Handle a changed range: repaint, request missing data, update the address. */
    changed() {
      this.stage.redraw();
      this.data.want();
      this.table.later();
      this.address.replaceEntry();
    }

    scrolled() {
      if (!this.data) return;
      this.stage.redraw();
      this.data.want();
      this.address.replaceEntry();
    }

    /** Repaint with an answer of the server; the overview only with one of the whole capture. */
    arrived({ from, to }) {
      this.stage.trouble("");
      if (from <= this.scale.min && to >= this.scale.max) this.heading.stale = true;
      this.stage.redraw();
      this.#seen();
    }

    #seen() {
      const seen = new Set();
      for (const answer of this.data.answers.slice(0, 6)) for (const one of answer.categories) seen.add(one);
      this.seen = seen;
      this.legend.show(this.colors, seen, this.off);
    }

    resize() {
      const { parts, scale } = this;
      scale.width = Math.max(100, parts.right.clientWidth);
      this.heading.stale = true;
      this.stage.place();
      this.table.refresh();
      this.changed();
    }

    themeChanged() {
      this.colors.read();
      this.heading.stale = true;
      this.stage.redraw();
      this.table.refresh();
      this.#seen();
    }

    /** Fold, hide, pin or move a lane or group, or group the lanes differently. */
    arrange(what, key) {
      const { lanes } = this;
      if (what === "unhide") lanes.unhide(key);
      else if (what === "up" || what === "down") lanes.move(key, what === "up" ? -1 : 1);
      else if (what === "place") lanes.moveBefore(key.key, key.before);
      else if (what === "collapse") lanes.collapse();
      else if (what === "group") lanes.group(key);
      else if (what === "edit" || what === "remove") { this.queries[what](key); return; }
      else if (what === "reset") lanes.restore({});
      else lanes.toggle(what, key);
      this.arranging.show(lanes);
      this.layoutChanged();
    }

    /** Update everything after a changed lane layout. */
    layoutChanged() {
      this.labels.show(this.lanes);
      this.stage.place();
      this.layout.apply();
      this.changed();
    }

    toggle(category) {
      if (!this.off.delete(category)) this.off.add(category);
      this.heading.stale = true;
      this.#seen();
      this.changed();
    }

    say(text) { this.parts.status.textContent = text; }

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
      this.arranging.show(lanes);
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

    point(pointer) {
      this.pointer = pointer;
      const found = pointer && (tl.hit(this, pointer.x, pointer.y) || tl.levelAt(this, pointer.x, pointer.y));
      this.hover = found;
      this.parts.overlay.classList.toggle("tkl-hovering", Boolean(found && !found.level));
      this.tooltip.show(found, pointer && pointer.x, pointer && pointer.y);
      this.stage.redraw(false);
    }

    /** Update the tooltip after a repaint under a resting pointer. */
    rehover() {
      if (!this.pointer || this.tooltip.node.hidden) return;
      const found = tl.hit(this, this.pointer.x, this.pointer.y) || tl.levelAt(this, this.pointer.x, this.pointer.y);
      const same = found && !found.level && this.hover && found.row === this.hover.row && found.exact === this.hover.exact;
      this.hover = found;
      if (!same) this.tooltip.show(found, this.pointer.x, this.pointer.y);
    }

    setBrush(brush) {
      this.brush = brush;
      this.stage.redraw(false);
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

    move(change) { this.moves.move(change); }
    jump(from, to) { this.moves.jump(from, to); }
    row(table, row) { return this.queries.row(table, row) || this.wire.row(table, row); }
    select(row, how) { return this.moves.select(row, how || {}); }
    step(by, what) { return this.moves.step(by, what); }
    fit() { this.moves.fit(); }
    whole() { this.moves.jump(this.scale.min, this.scale.max); }
    clear() { this.moves.clear(); }
    markView() { this.setBrush({ from: Math.floor(this.scale.from), to: Math.ceil(this.scale.to), lanes: null }); }
    selectMiddle() { this.moves.middle(); }
    /** Select the longest interval of a table row and search for its name from the longest on, or end that search. */
    async highlightName(row) {
      if (this.highlight === row.name) { this.search.clear(); return; }
      await this.select({ table: row.max.table, row: row.max.row }, { zoom: "near" });
      await this.search.set(row.category.startsWith("idle") ? { q: row.category, mode: "category", longest: true } : { q: row.name, mode: "name", longest: true });
    }
  };
})(window.tracekit.timeline);
