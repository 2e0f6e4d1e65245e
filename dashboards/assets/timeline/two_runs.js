/* Two runs above each other on one time axis: alignment, address, and selection of matched intervals. */
"use strict";
window.tracekit = window.tracekit || {};
window.tracekit.timeline = window.tracekit.timeline || {};
(function (tl) {
  const SLOW_MS = 250;
  const MARGIN = 0.02;
  const AROUND = 6;

  async function asked(path, words) {
    const query = new URLSearchParams(window.location.search);
    for (const [name, value] of Object.entries(words || {})) query.set(name, value);
    const answer = await fetch(`/compare/${path}?${query}`);
    if (!answer.ok) await tl.refused(answer);
    return answer.json();
  }

  tl.TwoRuns = class extends tl.App {
    static LABEL = "Both runs on one time axis, A above B. Period and comma select the next and previous interval.";

    constructor(element, source) {
      super(element, source);
      Object.assign(this, { isPartOfPage: true, step: 0, align: "step", known: window.location.search });
      this.address = { replaceEntry: tl.later(SLOW_MS, () => this.writeAddress()), pushEntry() {} };
    }

    async open() {
      const info = await asked("aligned");
      if (!this.alive) return;
      if (info.refused) { this.close(); return; }
      this.pairs = info.steps;
      const lanes = await Promise.all(info.runs.map((run) => new tl.Wire(run).json("lanes", {}, this.ending)));
      if (!this.alive) return;
      this.sides = info.runs.map((run, at) => new tl.Side(run, lanes[at], { at, device: info.device, origin: this.pairs[0].start_ns[at] }));
      this.wire = new tl.PairWire(this.sides);
      this.ranks = String(this.pairs[0].rank);
      tl.buildPair(this, { ...this.#extent, lanes: this.#lanesOf(0), categories: lanes[0].categories });
      await this.apply(tl.readPairAddress());
      this.watch(this.parts.right);
    }

    close() {
      if (!this.alive) return;
      super.close();
      this.address.replaceEntry.cancel();
      this.element.classList.remove("tka-open");
    }

    get #extent() {
      return { start_ns: Math.min(...this.sides.map((side) => side.info.start_ns - side.origin)), end_ns: Math.max(...this.sides.map((side) => side.info.end_ns - side.origin)) };
    }

    #lanesOf(step) { return this.sides.flatMap((side, at) => side.lanes(this.pairs[step].rank[at])); }

    paintedWith() { return { ...super.paintedWith(), origin: true }; }

    /** Frame the selected intervals, and join those of both runs. */
    paintSelection(pen) {
      const { selected, colors } = this;
      tl.paintLink(pen, this, selected.places);
      for (const place of selected.places) if (place) tl.frame(pen, this, place, colors.accent, 2);
    }

    /** Show a state: the step, the selection and the range. */
    async apply(state) {
      this.align = state.align;
      this.off = new Set(state.off);
      this.lanes.restore(state);
      this.step = Math.min(state.step, this.pairs.length - 1);
      if (!await this.#choose(state.row)) return;
      if (state.from !== null && state.to !== null && state.to > state.from) this.scale.setRange(state.from, state.to);
      else this.around();
      this.layoutChanged();
    }

    /** Select an interval of one side and its counterpart; null for none. */
    async select(row) {
      const before = this.#origins;
      const found = row && { side: row.side ?? row.lane.side, table: row.table, row: row.row };
      if (!await this.#choose(found)) return;
      if (this.#origins.some((one, at) => one !== before[at])) this.keepInView();
      this.changed();
    }

    /** Change the selection and place the runs; false if another change began meanwhile. */
    async #choose(row) {
      const turn = this.turn = (this.turn || 0) + 1;
      this.target = this.selected = null;
      const found = row && await this.#find(row, turn);
      if (!this.alive || turn !== this.turn) return false;
      if (found) {
        this.selected = found;
        this.step = found.step ?? this.step;
      }
      this.place();
      return true;
    }

    async #find({ side, table, row }, turn) {
      this.say("Finding the match");
      const { rows: matched, text, step } = await asked("match", { side: "ab"[side], row: `${table}:${row}` }).catch((error) => ({ text: error.message, rows: [null, null] }));
      if (!this.alive || turn !== this.turn) return null;
      const rows = matched.map((one, at) => one ?? (at === side ? row : null));
      const infos = await Promise.all(rows.map((one, at) => (one === null ? null : this.sides[at].wire.row(table, one).catch(() => null))));
      return { side, table, row, rows, text, step, infos };
    }

    /** Time of each run that is at zero of the common axis. */
    get #origins() {
      const infos = this.selected && this.selected.infos;
      return this.align === "op" && infos && infos.every(Boolean) ? infos.map((info) => info.start_ns) : this.pairs[this.step].start_ns;
    }

    /** Move the runs to their places on the common axis, and show the lanes of the ranks of the step. */
    place() {
      const origins = this.#origins;
      const moved = this.sides.map((side, at) => side.origin - origins[at]);
      if (moved.some(Boolean)) {
        this.sides.forEach((side, at) => { side.origin = origins[at]; });
        this.data.shift((id) => moved[tl.sideOf(id)]);
        const { start_ns: min, end_ns: max } = this.#extent;
        Object.assign(this.scale, { min, max });
        this.scale.setRange(this.scale.from, this.scale.to);
        this.heading.stale = true;
      }
      if (this.selected) this.selected.places = this.selected.infos.map((info, at) => info && this.sides[at].place(info));
      const ranks = String(this.pairs[this.step].rank);
      if (ranks !== this.ranks) {
        this.ranks = ranks;
        const { hidden, pinned, folded, order } = this.lanes;
        this.lanes = new tl.Lanes(this.#lanesOf(this.step));
        this.lanes.restore({ hidden, pinned, folded, order });
        this.heading = new tl.Head(this.parts.head, tl.overviewLanes(this.lanes.own));
        this.showLanes();
      }
      tl.describePair(this);
    }

    /** Show the whole step. */
    fit() {
      const { start_ns: starts, end_ns: ends } = this.pairs[this.step];
      const from = Math.min(...starts.map((one, at) => one - this.sides[at].origin));
      const to = Math.max(...ends.map((one, at) => one - this.sides[at].origin));
      this.scale.setRange(from - (to - from) * MARGIN, to + (to - from) * MARGIN);
    }

    /** Show the selected intervals and what is around them, or the step without any. */
    around() {
      const places = this.selected ? this.selected.places.filter(Boolean) : [];
      if (!places.length) { this.fit(); return; }
      const from = Math.min(...places.map((one) => one.start_ns));
      const to = Math.max(...places.map((one) => one.start_ns + one.dur_ns));
      const room = Math.max(to - from, 50) * (AROUND / 2 - 0.5);
      this.scale.setRange(from - room, to + room);
    }

    /** After the runs have moved, keep the selected interval in view. */
    keepInView() {
      const one = this.selected && this.selected.places[this.selected.side];
      if (!one) { this.fit(); return; }
      const { from, to, span } = this.scale;
      if (one.start_ns < from || one.start_ns > to) this.scale.setRange(one.start_ns - span / 2, one.start_ns + span / 2);
    }

    /** Change the range at once. */
    show(change) {
      this.target = null;
      change();
      this.changed();
    }

    goToStep(step) {
      this.turn += 1;
      this.step = Math.min(Math.max(step, 0), this.pairs.length - 1);
      this.selected = null;
      this.place();
      this.show(() => this.fit());
    }

    alignBy(align) {
      this.align = align;
      this.place();
      this.show(() => this.around());
    }

    /** Select the next or previous interval on the lane of the selection. */
    async next(by) {
      const { selected } = this;
      const one = selected && selected.infos[selected.side];
      if (!one || one.lane === null) return;
      const found = await this.sides[selected.side].wire.json("step", { lane: one.lane, row: `${selected.table}:${selected.row}`, by }).catch(() => null);
      if (!found || !found.interval || !this.alive) return;
      await this.select({ side: selected.side, table: found.interval.table, row: found.interval.row });
      this.show(() => this.keepInView());
    }

    /** Fields of a row, with the start on the common axis. */
    async row(table, row, lane) {
      const { wire, origin } = this.sides[lane.side];
      const info = await wire.row(table, row);
      return { ...info, start_ns: info.start_ns - origin };
    }

    zoomTo() { if (this.selected) this.show(() => this.around()); }

    /** Keys that act once, besides those of zooming and panning. */
    get keys() {
      return {
        0: () => this.show(() => this.fit()), f: () => this.zoomTo(), ".": () => this.next(1), ",": () => this.next(-1),
        "[": () => this.goToStep(this.step - 1), "]": () => this.goToStep(this.step + 1), Escape: () => (this.brush ? this.setBrush(null) : this.select(null)),
      };
    }

    words() {
      const words = new URLSearchParams(window.location.search);
      const set = (name, value) => { if (value) words.set(name, value); else words.delete(name); };
      const { selected, scale } = this;
      set("from", String(Math.floor(scale.from)));
      set("to", String(Math.ceil(scale.to)));
      set("row", selected ? `${selected.table}:${selected.row}` : "");
      set("side", selected ? "ab"[selected.side] : "");
      set("align", this.align === "op" ? "op" : "");
      set("step", this.step ? String(this.step) : "");
      tl.writeArrangement(set, this);
      return words.toString().replaceAll("%3A", ":").replaceAll("%2C", ",");
    }

    /** Put the state into the address, without a request; not while another address is being loaded. */
    writeAddress() {
      if (!this.alive || window.location.pathname !== "/compare" || !this.scale || this.known !== window.location.search) return;
      this.known = `?${this.words()}`;
      if (this.known !== window.location.search) window.history.replaceState(window.history.state, "", `/compare${this.known}`);
    }
  };
})(window.tracekit.timeline);
