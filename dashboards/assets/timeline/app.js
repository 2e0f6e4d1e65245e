/* What is looked at and chosen; everything else is told of it from here. */
"use strict";
window.tracekit = window.tracekit || {};
window.tracekit.timeline = window.tracekit.timeline || {};
(function (tl) {
  const CAUSES_MS = 1500;

  tl.App = class {
    constructor(element, source) {
      Object.assign(this, { element, source, off: new Set(), brush: null, selected: null, chosen: null, hover: null, pointer: null, highlight: null });
      this.control = new AbortController();
      this.ending = this.control.signal;
      this.alive = true;
      this.wire = new tl.Wire(source.run);
      this.stage = new tl.Stage(this);
      this.moves = new tl.Moves(this);
    }

    async open() {
      const { rank, device } = this.source;
      const told = await this.wire.json("lanes", { rank, device }, this.ending);
      this.told = told;
      this.steps = told.steps.filter((step) => step.rank === told.steps[0].rank).map((step, place) => ({ ...step, place }));
      this.lanes = new tl.Lanes(told.lanes);
      tl.build(this, told);
      this.#watch();
      this.data = new tl.Data(this.wire, this.scale, {
        lanes: () => this.wanted(), always: this.heading.lanes.map((lane) => lane.id),
        arrived: () => this.arrived(), failed: (error) => this.stage.trouble(error.message),
      });
      this.look(tl.readAddress(), { first: true });
      this.resize();
      if (!told.causes) this.#waitForCauses();
    }

    #watch() {
      this.resizing = new ResizeObserver(() => (this.element.isConnected ? this.resize() : this.close()));
      this.resizing.observe(this.parts.right);
      this.theming = new MutationObserver(() => this.repaint());
      this.theming.observe(document.documentElement, { attributes: true, attributeFilter: ["data-mantine-color-scheme"] });
      window.addEventListener("resize", () => this.stage.fitHeight(), { signal: this.ending });
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

    /** Idle time has its causes once the server has worked them out; until then it is just idle. */
    #waitForCauses() {
      window.setTimeout(async () => {
        if (!this.alive) return;
        const { rank, device } = this.source;
        const told = await this.wire.json("lanes", { rank, device, again: Date.now() }, this.ending).catch(() => null);
        if (!told || !this.alive) return;
        if (!told.causes) { this.#waitForCauses(); return; }
        this.data.answers.length = 0;
        this.wire.rows.clear();
        this.table.asked = "";
        this.heading.stale = true;
        this.changed();
      }, CAUSES_MS);
    }

    /** Lanes that are drawn now. */
    wanted() { return this.lanes.visible(this.stage.top - 40, this.stage.height + 80); }

    /** What the table is about: the marked range, else the view; its lanes, else all that are shown. */
    scope() {
      const { from, to } = this.brush || this.target || this.scale;
      const lanes = (this.brush && this.brush.lanes) || this.lanes.shown;
      return { from: Math.floor(from), to: Math.ceil(to), lanes: tl.ranges(lanes) };
    }

    paintedWith() {
      const { scale, data, colors, off, steps } = this;
      return { scale, data, colors, off, steps, names: this.matching };
    }

    rowAt(y) {
      const { pinsHeight, pins, rows } = this.lanes;
      return y < pinsHeight ? this.lanes.at(pins, y) : this.lanes.at(rows, y - pinsHeight + this.stage.top);
    }

    yOf(place) { return place.pinned ? place.y : this.lanes.pinsHeight + place.y - this.stage.top; }

    lanesBetween(top, bottom) {
      const inside = (row) => row.kind === "lane" && row.lane.kind !== "memory" && this.yOf(row) < bottom && this.yOf(row) + row.h > top;
      return [...this.lanes.pins, ...this.lanes.rows].filter(inside).map((row) => row.lane.id);
    }

    /** The range changed: paint what there is, ask for what is missing, say it in the address. */
    changed() {
      this.stage.redraw();
      this.data.want();
      this.table.later();
      this.address.follow();
    }

    scrolled() {
      if (!this.data) return;
      this.stage.redraw();
      this.data.want();
    }

    arrived() {
      this.stage.trouble("");
      this.heading.stale = true;
      this.stage.redraw();
      this.#seen();
    }

    #seen() {
      const seen = new Set();
      for (const answer of this.data.answers.slice(0, 6)) for (const lane of answer.lanes.values()) for (const one of lane.category || []) seen.add(one);
      this.seen = seen;
      this.legend.show(this.colors, seen, this.off);
    }

    resize() {
      const { parts, scale } = this;
      scale.width = Math.max(100, parts.right.clientWidth);
      this.heading.stale = true;
      this.stage.place();
      this.changed();
    }

    /** The theme changed. */
    repaint() {
      this.colors.read();
      this.heading.stale = true;
      this.stage.redraw();
      this.table.refresh();
      this.#seen();
    }

    /** Fold, hide or pin. */
    arrange(set, key) {
      if (set === "unhide") {
        const group = this.lanes.groups.find((one) => one.key === key);
        group.lines.forEach((line) => this.lanes.hidden.delete(line.key));
        this.lanes.place();
      } else this.lanes.toggle(set, key);
      this.laid();
    }

    /** Lanes stand elsewhere now. */
    laid() {
      this.labels.show(this.lanes);
      this.stage.place();
      this.stage.fitHeight();
      this.changed();
    }

    toggle(category) {
      if (!this.off.delete(category)) this.off.add(category);
      this.heading.stale = true;
      this.#seen();
      this.changed();
    }

    say(text) { this.parts.status.textContent = text; }

    /** Take over what an address says; one of the history that names no range had the whole capture in view. */
    look(said, { first = false, back = false } = {}) {
      const { lanes } = this;
      Object.assign(lanes, { hidden: new Set(said.hidden), pinned: new Set(said.pinned), folded: new Set(said.folded) });
      this.off = new Set(said.off);
      lanes.place();
      this.heading.stale = true;
      this.target = null;
      const ranged = said.from !== null || said.to !== null;
      const known = Boolean(this.chosen && said.row && this.chosen.table === said.row.table && this.chosen.row === said.row.row);
      if (ranged || back || known || !said.row) this.scale.look(said.from ?? this.scale.min, said.to ?? this.scale.max);
      this.laid();
      const zoom = said.row && !ranged && !back ? "near" : first ? "lane" : null;
      if (!known) this.moves.select(said.row, { zoom, silent: true });
    }

    point(pointer) {
      this.pointer = pointer;
      const found = pointer && (tl.hit(this, pointer.x, pointer.y) || tl.levelAt(this, pointer.x, pointer.y));
      this.hover = found;
      this.parts.overlay.classList.toggle("tkl-over", Boolean(found && !found.level));
      this.tooltip.show(found, pointer && pointer.x, pointer && pointer.y);
      this.stage.redraw(false);
    }

    /** Something else is under a pointer that rests. */
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
      if (!brush || !brush.active) this.table.later();
    }

    /** Names that stand out: all that contain a text, or exactly one; null for none. */
    setHighlight(name, part = false) {
      this.highlight = part ? null : name;
      const met = new Map();
      const wanted = name && name.toLowerCase();
      const test = (one) => (part ? one.toLowerCase().includes(wanted) : one === name);
      this.matching = name ? (one) => { if (!met.has(one)) met.set(one, test(one)); return met.get(one); } : null;
      this.stage.redraw();
      this.table.refresh();
    }

    move(change) { this.moves.move(change); }
    jump(from, to) { this.moves.jump(from, to); }
    select(row, how) { return this.moves.select(row, how || {}); }
    step(by, what) { return this.moves.step(by, what); }
    fit() { this.moves.fit(); }
    whole() { this.moves.jump(this.scale.min, this.scale.max); }
    clear() { this.moves.clear(); }
    markView() { this.setBrush({ from: Math.floor(this.scale.from), to: Math.ceil(this.scale.to), lanes: null }); }
    selectMiddle() { this.moves.middle(); }
    highlightName(row) {
      this.setHighlight(this.highlight === row.name ? null : row.name);
      if (this.highlight) this.select({ table: row.max.table, row: row.max.row }, { zoom: "near" });
    }
  };
})(window.tracekit.timeline);
