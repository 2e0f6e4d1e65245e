/* Navigation: to a range, to an interval, to the next or previous interval. */
"use strict";
window.tracekit = window.tracekit || {};
window.tracekit.timeline = window.tracekit.timeline || {};
(function (tl) {
  const DURATION_MS = 170;
  const NEAR = 8;
  const QUEUE = 4;
  const HEADER = 60;

  const reducedMotion = () => window.matchMedia("(prefers-reduced-motion: reduce)").matches;

  /** Interpolate between two ranges, with exponential zoom. */
  function between(a, b, part) {
    const ease = 1 - (1 - part) ** 3;
    const span = Math.exp(Math.log(a.to - a.from) * (1 - ease) + Math.log(b.to - b.from) * ease);
    const widths = b.to - b.from - (a.to - a.from);
    const share = Math.abs(widths) < 1 ? ease : (span - (a.to - a.from)) / widths;
    const from = a.from + (b.from - a.from) * share;
    return { from, to: from + span };
  }

  tl.Moves = class {
    constructor(app) {
      Object.assign(this, { app, waiting: 0, turn: Promise.resolve(), selecting: null });
    }

    /** Move directly; cancels a running animation. */
    move(change) {
      this.app.target = null;
      if (change()) this.app.changed();
    }

    /** Move with animation and a history entry. */
    jump(from, to) {
      const { app } = this;
      const aim = new tl.Scale(app.scale.min, app.scale.max, app.scale.width);
      aim.setRange(from, to);
      app.address.pushEntry();
      if (reducedMotion() || document.hidden) { this.move(() => app.scale.setRange(aim.from, aim.to)); return; }
      const target = { from: aim.from, to: aim.to };
      const start = { from: app.scale.from, to: app.scale.to, at: performance.now() };
      app.target = target;
      app.data.prefetchRange(target.from, target.to);
      const frame = (now) => {
        if (app.target !== target || !app.alive) return;
        const part = Math.min(1, (now - start.at) / DURATION_MS);
        const at = part < 1 ? between(start, target, Math.max(0, part)) : target;
        app.scale.setRange(at.from, at.to);
        app.stage.redraw();
        if (part < 1) window.requestAnimationFrame(frame);
        else { app.target = null; app.changed(); }
      };
      window.requestAnimationFrame(frame);
    }

    /** The step that a link leads to; without a number the longest of the rank. */
    #stepOf({ at, rank }) {
      const found = this.app.info.steps.filter((one) => (at === null || one.step === at) && (rank === null || one.rank === rank));
      const lasts = (one) => one.end_ns - one.start_ns;
      return at === null ? found.reduce((a, b) => (a && lasts(a) >= lasts(b) ? a : b), undefined) : found[0];
    }

    /** Follow a link from a row of a table: to a step, or to a match of the search; again once the causes of idle time are known. */
    async arrive(goal) {
      const { app } = this;
      const step = goal.to === "step" && this.#stepOf(goal);
      try {
        if (step) await this.select({ table: "steps", row: step.row }, { zoom: "exactly" });
        else if (goal.to === "step") app.say(goal.at === null ? "No step is on the timeline" : `Step ${goal.at} is not on the timeline`);
        else this.unmet = !(await app.search.arrive(goal)) && !app.info.causes ? goal : null;
      } catch (error) {
        app.stage.trouble(error.message);
      }
    }

    /** Select a row, show its details, and bring it into view according to `zoom`. */
    select(row, how) {
      this.selecting = this.#select(row, how);
      return this.selecting;
    }

    async #select(row, { zoom, silent }) {
      const { app } = this;
      app.chosen = row;
      if (!row) {
        app.selected = null;
        app.details.show(null);
        app.search.locate();
        if (!silent) { app.say("Selection cleared"); app.address.replaceEntry(); }
        app.stage.redraw(false);
        return;
      }
      let info;
      try {
        info = await app.row(row.table, row.row);
      } catch (error) {
        app.stage.trouble(error.message);
        return;
      }
      if (app.chosen !== row || !app.alive) return;
      this.#shown(info, row);
      if (zoom) this.#bringIntoView(zoom);
      if (!silent) app.address.replaceEntry();
      app.stage.redraw(false);
    }

    #shown(info, row) {
      const { app } = this;
      const start = info.start_ns;
      const dur = info.fields.dur_ns.value;
      app.selected = { ...row, lane: info.lane, start_ns: start, dur_ns: dur, name: info.fields.name.value, info };
      app.details.show(info);
      app.search.locate();
      const lane = app.lanes.byId.get(info.lane);
      app.say(`${tl.cut(tl.brief(tl.titleOf(info)), 80)} · ${tl.time(dur)} · from ${tl.exactly(start)}${lane ? ` · ${lane.group} · ${lane.title}` : ""}`);
    }

    #bringIntoView(zoom) {
      const { app } = this;
      const { lane, start_ns: start, dur_ns: dur } = app.selected;
      if (lane !== null && !app.lanes.byId.has(lane)) { this.#reportFiltered(); return; }
      if (lane !== null) this.scrollTo(lane);
      if (zoom === "exactly") this.jump(start, start + dur);
      else if (zoom === "closely") this.jump(start - dur * 0.1, start + dur * 1.1);
      else if (zoom === "near" || zoom === "seen") this.#showNear(start, Math.max(dur, 50), zoom === "near");
    }

    /** Report a selection that the rank or device filter hides. */
    #reportFiltered() {
      const { rank, device } = this.app.selected.info.fields;
      const place = [["rank", rank], ["device", device]].filter(([, one]) => one && one.value !== null).map(([word, one]) => `${word} ${one.value}`);
      this.app.say(`The selection is on ${place.join(", ")}, which is filtered out at the top of the page`);
    }

    /** Scroll into view only as far as needed, or zoom so that the interval has a useful size. */
    #showNear(start, dur, sized) {
      const { scale } = this.app;
      const seen = start >= scale.from && start + dur <= scale.to;
      const share = dur / scale.span;
      const good = !sized || (share > 0.05 && share < 0.6);
      if (seen && good) return;
      const span = good && share < 0.9 ? scale.span : dur * NEAR;
      const middle = start + dur / 2;
      this.jump(middle - span / 2, middle + span / 2);
    }

    scrollTo(id) {
      const { app } = this;
      if (!app.lanes.where.has(id) || app.lanes.where.get(id).strip) {
        if (!app.lanes.reveal(id)) return;
        app.layoutChanged();
      }
      const place = app.lanes.where.get(id);
      const y = app.parts.overlay.getBoundingClientRect().top + app.yOf(place);
      if (y < HEADER || y > window.innerHeight - 30) app.parts.stage.scrollIntoView({ block: "nearest" });
      const room = app.stage.height - app.lanes.pinsHeight;
      if (place.pinned || (place.y >= app.stage.top && place.y + place.h <= app.stage.top + room)) return;
      app.parts.scroller.scrollTop = place.y - room / 2;
    }

    /** Step to the next or previous interval; key presses are queued. */
    async step(by, what) {
      await this.queued(() => this.#step(by, what));
    }

    async queued(call) {
      if (this.waiting > QUEUE) return;
      this.waiting += 1;
      this.turn = this.turn.then(() => this.selecting).then(call).finally(() => { this.waiting -= 1; });
      await this.turn;
    }

    async #step(by, what) {
      const { app } = this;
      const from = app.selected;
      if (!from) { this.middle(); return; }
      if (from.info.query) {
        const next = app.queries.step(from, by, what);
        if (next) await this.select(next, { zoom: "seen" });
        return;
      }
      const which = what === "lane" || from.table === "steps" || from.info.cause ? { lane: from.lane } : { q: from.name, mode: "name" };
      const found = await app.wire.json("step", { ...which, row: `${from.table}:${from.row}`, by }).catch((error) => { app.stage.trouble(error.message); return null; });
      if (!app.alive || !found || !found.interval) return;
      await this.select({ table: found.interval.table, row: found.interval.row }, { zoom: "seen" });
    }

    /** Select the interval at the middle of the first visible lane that has one. */
    middle() {
      const { app } = this;
      for (const row of [...app.lanes.pins, ...app.lanes.rows]) {
        const y = app.yOf(row) + row.h / 2;
        if (row.kind !== "lane" || row.strip || y < 0 || y > app.stage.height || row.lane.kind === "steps") continue;
        for (const x of [0.5, 0.4, 0.6, 0.25, 0.75]) {
          const found = tl.hit(app, app.scale.width * x, y);
          if (found) { app.select(found, {}); return; }
        }
      }
      app.say("No interval in view");
    }

    /** Zoom to the marked range, else to the selection once it is loaded, else to the whole capture. */
    async fit() {
      const { app } = this;
      if (app.brush) { const { from, to } = app.brush; app.setBrush(null); this.jump(from, to); return; }
      await this.queued(() => this.#fitSelection());
    }

    #fitSelection() {
      const { app } = this;
      const one = app.selected;
      const dur = one && Math.max(one.dur_ns, 50);
      const shown = one && Math.abs(app.scale.span - dur * 1.2) < dur * 0.05 && one.start_ns >= app.scale.from && one.start_ns <= app.scale.to;
      if (!one || shown) app.whole();
      else this.jump(one.start_ns - dur * 0.1, one.start_ns + dur * 1.1);
    }

    clear() {
      const { app } = this;
      if (app.search.query.q) app.search.clear();
      else if (app.brush) app.setBrush(null);
      else this.select(null, {});
    }
  };
})(window.tracekit.timeline);
