/* State of what draws the lanes of one or two runs; notifies all other parts of changes. */
"use strict";
window.tracekit = window.tracekit || {};
window.tracekit.timeline = window.tracekit.timeline || {};
(function (tl) {
  tl.App = class {
    constructor(element, source) {
      Object.assign(this, { element, source, off: new Set(), steps: [], brush: null, selected: null, hover: null, pointer: null, highlight: null });
      this.isPartOfPage = false; // then the page scrolls, and keys of other parts are not handled
      this.control = new AbortController();
      this.ending = this.control.signal;
      this.alive = true;
      this.stage = new tl.Stage(this);
      this.moves = new tl.Moves(this);
    }

    /** Build the parts that draw lanes; `insert` puts the stage and the legend into the page. */
    assemble({ lanes, categories, start_ns: start, end_ns: end }, insert) {
      const legend = tl.el("div", { class: "tkl-legend", role: "group", "aria-label": "Categories in view" });
      this.parts = this.stage.build(this.constructor.LABEL);
      this.lanes = new tl.Lanes(lanes);
      this.tooltip = new tl.Tooltip(this);
      insert(this.parts, legend);
      this.scale = new tl.Scale(start, end, this.width);
      this.colors = new tl.Colors(this.element, categories);
      this.heading = new tl.Head(this.parts.head, tl.overviewLanes(lanes));
      const arrange = (what, key) => this.arrange(what, key);
      this.labels = new tl.Labels(this.parts.pins, this.parts.scroller, arrange);
      new tl.LaneDrag(this, this.parts.scroller, arrange);
      this.legend = new tl.Legend(legend, (id) => this.toggle(id));
      this.data = new tl.Data(this.wire, this.scale, {
        lanes: () => this.wanted(), always: () => this.heading.lanes.map((lane) => lane.id), fixed: (id) => this.fixed(id),
        arrived: (answer) => this.arrived(answer), failed: (error) => this.stage.trouble(error.message),
      });
      new tl.Pointer(this);
      new tl.Keys(this);
    }

    /** Follow the sizes of nodes, and the theme. */
    watch(...nodes) {
      this.resizing = new ResizeObserver(() => (this.element.isConnected ? this.resize() : this.close()));
      for (const node of nodes) this.resizing.observe(node);
      this.theming = new MutationObserver(() => this.themeChanged());
      this.theming.observe(document.documentElement, { attributes: true, attributeFilter: ["data-mantine-color-scheme"] });
    }

    close() {
      if (!this.alive) return;
      this.alive = false;
      this.control.abort();
      for (const part of [this.resizing, this.theming]) if (part) part.disconnect();
      if (this.data) this.data.close();
      this.element.replaceChildren();
    }

    get width() { return Math.max(100, this.parts.right.clientWidth); }

    /** Lanes to ask for. */
    wanted() { return this.lanes.visible(this.stage.top - 40, this.stage.height + 80).filter(tl.isOfRun); }

    /** Layer of a lane that the server does not know. */
    fixed() { return null; }

    paintedWith() {
      const { scale, data, colors, off, steps } = this;
      return { scale, data, colors, off, steps, matching: this.matching };
    }

    paintSelection(pen) { tl.paintSelected(pen, this); }

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
      this.scale.width = this.width;
      this.heading.stale = true;
      this.fitHeight();
      this.stage.place();
      this.changed();
    }

    fitHeight() { this.stage.fitHeight(); }

    themeChanged() {
      this.colors.read();
      this.heading.stale = true;
      this.stage.redraw();
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
      else if (what === "reset") lanes.restore({});
      else lanes.toggle(what, key);
      this.layoutChanged();
    }

    /** Update everything after a changed lane layout. */
    layoutChanged() {
      this.showLanes();
      this.changed();
    }

    showLanes() {
      this.labels.show(this.lanes);
      this.stage.place();
      this.fitHeight();
    }

    toggle(category) {
      if (!this.off.delete(category)) this.off.add(category);
      this.heading.stale = true;
      this.#seen();
      this.changed();
    }

    say(text) { this.parts.status.textContent = text; }

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
    }

    /** Zoom to what a double-click is on: an interval, or its time. */
    zoomTo(found, x) {
      if (!found) this.jump(this.scale.time(x - this.scale.width / 4), this.scale.time(x + this.scale.width / 4));
      else if (found.exact) this.jump(found.start - found.dur * 0.1, found.start + found.dur * 1.1);
      else this.select(found, { zoom: "closely" });
    }

    move(change) { this.moves.move(change); }
    jump(from, to) { this.moves.jump(from, to); }
    whole() { this.moves.jump(this.scale.min, this.scale.max); }
    selectMiddle() { this.moves.middle(); }
  };
})(window.tracekit.timeline);
