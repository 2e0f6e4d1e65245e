/* Two runs on one time axis: state, address, and selection of matched intervals. Drawing reuses the timeline's parts. */
"use strict";
window.tracekit = window.tracekit || {};
window.tracekit.aligned = window.tracekit.aligned || {};
window.dash_clientside = window.dash_clientside || {};
(function (al) {
  const SLOW_MS = 250;
  const MARGIN = 0.02;
  const AROUND = 6;
  const LETTERS = ["A", "B"];
  const STATE = ["from", "to", "row", "side", "align", "step", "off"];
  const tl = () => window.tracekit.timeline;

  async function asked(path, words) {
    const query = new URLSearchParams(window.location.search);
    for (const [name, value] of Object.entries(words || {})) query.set(name, value);
    const answer = await fetch(`/compare/${path}?${query}`);
    const content = await answer.json().catch(() => ({ error: `the server answered with status ${answer.status}` }));
    if (!answer.ok) throw new Error(content.error);
    return content;
  }

  const addressed = () => parsed(Object.fromEntries(new URLSearchParams(window.location.search)));

  /** Parse the state of the view from words of an address. */
  function parsed(words) {
    const number = (text) => (/^-?\d{1,18}$/.test(text ?? "") ? Number(text) : null);
    const row = /^([a-z_]{1,40}):(\d{1,12})$/.exec(words.row || "");
    return {
      from: number(words.from), to: number(words.to), step: Math.max(0, number(words.step) || 0), align: words.align === "op" ? "op" : "step",
      row: row && { side: words.side === "a" ? 0 : 1, table: row[1], row: Number(row[2]) },
      off: (words.off || "").split(".").filter((one) => /^\d{1,3}$/.test(one)).map(Number),
    };
  }

  al.App = class {
    constructor(element, source) {
      Object.assign(this, { element, source, alive: true, match: null, off: new Set(), step: 0, align: "step" });
      this.control = new AbortController();
      this.known = window.location.search;
      this.later = tl().later(SLOW_MS, () => this.writeAddress());
    }

    async open() {
      const info = await asked("aligned");
      if (!this.alive) return;
      if (info.refused) { this.close(); return; }
      this.steps = info.steps;
      const lanes = await Promise.all(info.runs.map((run) => new (tl().Wire)(run).json("lanes", {}, this.control.signal)));
      if (!this.alive) return;
      this.sides = info.runs.map((run, place) => new al.Side(this, run, lanes[place], { letter: LETTERS[place], device: info.device }));
      al.build(this, lanes[0].categories);
      await this.apply(addressed());
    }

    close() {
      if (!this.alive) return;
      this.alive = false;
      this.control.abort();
      this.later.cancel();
      for (const side of this.sides || []) side.drawn.close();
      if (this.resizing) this.resizing.disconnect();
      if (this.theming) this.theming.disconnect();
      this.element.replaceChildren();
      this.element.classList.remove("tka-open");
    }

    /** Show a state: the step, the selection and the range. */
    async apply(state) {
      this.align = state.align;
      this.off.clear();
      for (const one of state.off) this.off.add(one);
      this.step = Math.min(state.step, this.steps.length - 1);
      this.match = null;
      const turn = this.#next();
      if (state.row) await this.#find(state.row);
      if (!this.alive || turn !== this.turn) return;
      this.place();
      if (state.from !== null && state.to !== null && state.to > state.from) this.scale.setRange(state.from, state.to);
      else if (this.match) this.around();
      else this.fit();
      this.changed();
    }

    /** Select an interval of one side and its counterpart; null for none. */
    async select(row) {
      const before = this.origins();
      this.match = null;
      const turn = this.#next();
      if (row) await this.#find(row);
      if (!this.alive || turn !== this.turn) return;
      this.place();
      const moved = this.origins().some((one, at) => one !== before[at]);
      if (moved) this.keepInView(row);
      this.changed();
    }

    /** Begin a change of the selection; those before it that still wait for a match have no effect. */
    #next() {
      this.turn = (this.turn || 0) + 1;
      return this.turn;
    }

    async #find({ side, table, row }) {
      this.finding = `${side}:${table}:${row}`;
      al.say(this, "Finding the match");
      const found = await asked("match", { side: "ab"[side], row: `${table}:${row}` }).catch((error) => ({ text: error.message, rows: [null, null] }));
      if (!this.alive || this.finding !== `${side}:${table}:${row}`) return;
      const rows = found.rows.map((one, at) => one ?? (at === side ? row : null));
      const details = await Promise.all(rows.map((one, at) => (one === null ? null : this.sides[at].interval(table, one).catch(() => null))));
      if (!this.alive || this.finding !== `${side}:${table}:${row}`) return;
      this.match = { side, table, row, rows, text: found.text, intervals: details };
      if (found.step !== undefined && found.step !== null) this.step = found.step;
    }

    /** Time of each run that is at zero of the common axis. */
    origins() {
      const both = this.match && this.match.intervals.every(Boolean);
      if (this.align === "op" && both) return this.match.intervals.map((one) => one.start_ns);
      return this.steps[this.step].start_ns;
    }

    /** Move the runs to their places on the common axis. */
    place() {
      const origins = this.origins();
      this.sides.forEach((side, at) => { side.origin = origins[at]; });
      const min = Math.min(...this.sides.map((side) => side.info.start_ns - side.origin));
      const max = Math.max(...this.sides.map((side) => side.info.end_ns - side.origin));
      const { from, to } = this.scale || { from: min, to: max };
      this.scale = new (tl().Scale)(min, max, this.width());
      this.scale.setRange(from, to);
      al.layout(this);
    }

    /** Show the whole step. */
    fit() {
      const step = this.steps[this.step];
      const origins = this.origins();
      const from = Math.min(...step.start_ns.map((one, at) => one - origins[at]));
      const to = Math.max(...step.end_ns.map((one, at) => one - origins[at]));
      this.scale.setRange(from - (to - from) * MARGIN, to + (to - from) * MARGIN);
    }

    /** Show the selected intervals and what is around them. */
    around() {
      const known = this.match.intervals.map((one, at) => one && { from: one.start_ns - this.sides[at].origin, to: one.start_ns + one.dur_ns - this.sides[at].origin }).filter(Boolean);
      if (!known.length) { this.fit(); return; }
      const from = Math.min(...known.map((one) => one.from));
      const to = Math.max(...known.map((one) => one.to));
      const room = Math.max(to - from, 50) * (AROUND / 2 - 0.5);
      this.scale.setRange(from - room, to + room);
    }

    /** After the runs have moved, keep the selected interval in view. */
    keepInView({ side }) {
      const one = this.match && this.match.intervals[side];
      if (!one) { this.fit(); return; }
      const at = one.start_ns - this.sides[side].origin;
      if (at < this.scale.from || at > this.scale.to) this.scale.setRange(at - this.scale.span / 2, at + this.scale.span / 2);
    }

    /** Hide or show a category. */
    toggle(category) {
      if (!this.off.delete(category)) this.off.add(category);
      al.legend(this);
      this.redraw();
      this.later();
    }

    goToStep(step) {
      this.step = Math.min(Math.max(step, 0), this.steps.length - 1);
      this.match = null;
      this.place();
      this.fit();
      this.changed();
    }

    alignBy(align) {
      this.align = align;
      this.place();
      if (this.match) this.around();
      else this.fit();
      this.changed();
    }

    /** Select the next or previous interval on the lane of the selection. */
    async next(by) {
      const { match } = this;
      const one = match && match.intervals[match.side];
      if (!one || one.lane === null) return;
      const found = await this.sides[match.side].wire.json("step", { lane: one.lane, row: `${match.table}:${match.row}`, by }).catch(() => null);
      if (!found || !found.interval || !this.alive) return;
      const row = { side: match.side, table: found.interval.table, row: found.interval.row };
      await this.select(row);
      this.keepInView(row);
      this.changed();
    }

    changed() {
      for (const side of this.sides) side.want();
      al.describe(this);
      this.redraw();
      this.later();
    }

    redraw() {
      if (this.frame) return;
      this.frame = window.requestAnimationFrame(() => { this.frame = 0; if (this.alive && this.scale) al.paint(this); });
    }

    words() {
      const words = new URLSearchParams(window.location.search);
      const set = (name, value) => { if (value) words.set(name, value); else words.delete(name); };
      const { match, scale } = this;
      set("from", String(Math.floor(scale.from)));
      set("to", String(Math.ceil(scale.to)));
      set("row", match ? `${match.table}:${match.row}` : "");
      set("side", match ? "ab"[match.side] : "");
      set("align", this.align === "op" ? "op" : "");
      set("step", this.step ? String(this.step) : "");
      set("off", [...this.off].join("."));
      return words.toString().replaceAll("%3A", ":").replaceAll("%2C", ",");
    }

    /** Put the state into the address, without a request; not while another address is being loaded. */
    writeAddress() {
      if (!this.alive || window.location.pathname !== "/compare" || !this.scale || this.known !== window.location.search) return;
      this.known = `?${this.words()}`;
      if (this.known !== window.location.search) window.history.replaceState(window.history.state, "", `/compare${this.known}`);
    }

    width() { return Math.max(80, this.element.clientWidth - 2 - al.gutter(this.element)); }
  };

  al.title = () => tl().el("h2", { class: "tka-title" }, "Both runs on one time axis");

  const same = (a, b) => a.base === b.base && a.run === b.run && a.varying === b.varying && a.repeats === b.repeats;
  const place = (source) => STATE.map((name) => source[name] ?? "").join(" ");

  /** Show the runs of a source, or apply its changed state; null removes the view. */
  al.mount = function (element, source) {
    const before = al.current;
    const stays = before && before.alive && before.element === element;
    if (stays && source && same(before.source, source)) {
      const moved = source.row && place(before.source) !== place(source);
      before.source = source;
      before.known = window.location.search;
      if (moved && before.sides) {
        before.apply(parsed(source));
        element.scrollIntoView({ block: "nearest" });
      } else before.writeAddress();
      return;
    }
    if (before) before.close();
    al.current = null;
    element.classList.toggle("tka-open", Boolean(source));
    if (!source) return;
    const app = new al.App(element, source);
    al.current = app;
    element.replaceChildren(al.title(), tl().el("p", { class: "tkl-hint", role: "status" }, "Aligning the runs"));
    app.open().catch((error) => {
      if (error.name === "AbortError" || !app.alive) return;
      element.replaceChildren(tl().el("p", { class: "tkl-error", role: "alert" }, `The runs cannot be aligned: ${error.message}`));
    });
  };

  window.addEventListener("popstate", () => {
    const app = al.current;
    if (!app || !app.alive || !app.sides || window.location.pathname !== "/compare") return;
    app.known = window.location.search;
    app.apply(addressed());
  });

  window.dash_clientside.tracekit_aligned = {
    show(source) {
      const element = document.getElementById("aligned");
      if (element) al.mount(element, source || null);
      return window.dash_clientside.no_update;
    },
  };
})(window.tracekit.aligned);
