/* Cached drawing data: one request at a time, latest first; coarse data is shown until it arrives. */
"use strict";
window.tracekit = window.tracekit || {};
window.tracekit.timeline = window.tracekit.timeline || {};
(function (tl) {
  const CAPACITY = 16;
  const MARGIN = 0.2;
  const IDLE_MS = 140;
  const STALE_MS = 300;

  tl.Data = class {
    constructor(wire, scale, { lanes, always, fixed = () => null, arrived, failed }) {
      Object.assign(this, { wire, scale, lanes, always, fixed, arrived, failed });
      this.answers = [];
      this.seen = null;
      this.pending = null;
      this.closed = false;
      this.prefetch = tl.later(IDLE_MS, () => this.#prefetch());
    }

    close() {
      this.closed = true;
      this.prefetch.cancel();
      if (this.pending) this.pending.control.abort();
    }

    /** Whether the view is drawn at full resolution. */
    get settled() {
      const ids = this.lanes();
      return !ids.length || Boolean(this.#serving(this.scale.from, this.scale.to, ids));
    }

    /** Request missing data of a changed view, after or instead of the pending request. */
    want() {
      const { from, to } = this.scale;
      const found = this.#serving(from, to, this.lanes());
      if (found) {
        this.#keep(found);
        this.prefetch();
        return;
      }
      const pending = this.pending;
      if (!pending) this.#ask(this.#window(from, to));
      else if (pending.prefetch || performance.now() - pending.since > STALE_MS) {
        pending.control.abort();
        this.pending = null;
        this.#ask(this.#window(from, to));
      }
    }

    /** Prefetch a range if no request is pending. */
    prefetchRange(from, to) {
      if (!this.pending && !this.#serving(from, to, this.lanes())) this.#ask(this.#window(from, to));
    }

    /** Forget all answers, which have changed on the server. */
    forget() {
      this.#abort();
      this.answers.length = 0;
    }

    #abort() {
      if (this.pending) this.pending.control.abort();
      this.pending = null;
      this.seen = null;
    }

    /** Move each lane on the time axis by what is given for its id; an answer then covers what all of its lanes do. */
    shift(by) {
      this.#abort();
      for (const answer of this.answers) {
        answer.lanes.forEach((lane, id) => tl.moveLayer(lane, by(id)));
        const lanes = [...answer.lanes.values()];
        answer.from = Math.max(...lanes.map((lane) => lane.from));
        answer.to = Math.min(...lanes.map((lane) => lane.to));
      }
      this.answers = this.answers.filter(({ from, to }) => from < to);
    }

    /** The layers of a lane, coarse first; each is painted where the next has no data. */
    layers(id, { from, to }) {
      const fixed = this.fixed(id);
      if (fixed) return [fixed];
      let under = null;
      let over = null;
      for (const answer of this.#inView(from, to)) {
        if (!answer.lanes.has(id)) continue;
        over = over || answer;
        if (answer.from <= from + 1 && answer.to >= to - 1) { under = answer; break; }
      }
      if (under && (over === under || over.px >= under.px * 0.99 || exact(under, id))) over = null;
      return [under, over].filter(Boolean).map((answer) => answer.lanes.get(id));
    }

    /** The layer of a lane that covers the whole capture, as `layers`. */
    get whole() {
      const found = this.#complete();
      return { layers: (id) => (found && found.lanes.has(id) ? [found.lanes.get(id)] : []) };
    }

    /** Answers that overlap a range, the finest first; kept for all lanes of a frame. */
    #inView(from, to) {
      const { seen } = this;
      if (!seen || seen.from !== from || seen.to !== to) {
        const answers = this.answers.filter((answer) => answer.from < to && answer.to > from).sort(finest);
        this.seen = { from, to, answers };
      }
      return this.seen.answers;
    }

    /** The answer that covers the whole capture, that with most lanes of the overview. */
    #complete() {
      const known = (one) => this.always().filter((id) => one.lanes.has(id)).length;
      return this.answers.filter((one) => one.from <= this.scale.min && one.to >= this.scale.max).sort((a, b) => known(b) - known(a))[0];
    }

    #serving(from, to, ids) {
      const px = this.scale.perPixel;
      const fits = (answer) => answer.from <= Math.max(from, this.scale.min) + 0.5 && answer.to >= to - 0.5;
      const sharp = (answer) => ids.every((id) => {
        const lane = answer.lanes.get(id);
        return lane && (lane.mode === "exact" || (answer.px <= px * 1.02 && answer.px >= px * 0.45));
      });
      return this.answers.find((answer) => fits(answer) && sharp(answer));
    }

    #window(from, to) {
      const { min, max, width } = this.scale;
      const margin = (to - from) * MARGIN;
      const start = Math.floor(Math.max(min, from - margin));
      const end = Math.ceil(Math.min(max, to + margin));
      const columns = Math.min(8192, Math.max(16, Math.ceil((width * (end - start)) / (to - from))));
      const ids = this.lanes().slice(0, 500);
      const same = this.answers.find((one) => one.from === start && one.to === end && one.width === columns);
      const lanes = same ? ids.filter((id) => !same.lanes.has(id)) : ids;
      return { from: start, to: end, width: columns, lanes };
    }

    async #ask(window, prefetch = false) {
      if (!window.lanes.length || this.closed) return;
      const control = new AbortController();
      const request = { control, prefetch, since: performance.now() };
      this.pending = request;
      try {
        const answer = await this.wire.draw(window, control.signal);
        control.signal.throwIfAborted();
        this.#add(answer);
        if (!this.closed) this.arrived(answer);
      } catch (error) {
        if (error.name !== "AbortError" && !this.closed) this.failed(error);
        if (error.name !== "AbortError") return;
      } finally {
        if (this.pending === request) this.pending = null;
      }
      if (!this.closed && !this.pending) this.want();
    }

    #add(answer) {
      this.seen = null;
      answer.px = (answer.to - answer.from) / answer.width;
      answer.categories = categories(answer);
      const same = this.answers.find((one) => one.from === answer.from && one.to === answer.to && one.width === answer.width);
      if (same) {
        answer.lanes.forEach((lane, id) => same.lanes.set(id, lane));
        answer.categories.forEach((one) => same.categories.add(one));
      } else this.answers.unshift(answer);
      const whole = this.#complete();
      if (this.answers.length > CAPACITY) {
        const last = this.answers.pop();
        if (last === whole) this.answers.splice(CAPACITY - 2, 1, last);
      }
    }

    #keep(answer) {
      const at = this.answers.indexOf(answer);
      if (at > 0) this.answers.unshift(...this.answers.splice(at, 1));
    }

    /** When idle, prefetch the whole capture, then the ranges left and right of the view. */
    #prefetch() {
      if (this.pending || this.closed) return;
      const { from, to, min, max, span } = this.scale;
      const ids = this.lanes();
      const all = [...new Set([...this.always(), ...ids])].slice(0, 500);
      const whole = this.answers.some((one) => one.from <= min && one.to >= max && all.every((id) => one.lanes.has(id)));
      if (!whole) { this.#ask({ from: min, to: max, width: Math.min(8192, Math.ceil(this.scale.width)), lanes: all }, true); return; }
      for (const by of [span * 0.8, -span * 0.8]) {
        const start = Math.min(Math.max(from + by, min), max - span);
        if (!this.#serving(start, start + span, ids)) { this.#ask(this.#window(start, start + span), true); return; }
      }
    }
  };

  /** Move a layer on the time axis. */
  tl.moveLayer = function (layer, by) {
    layer.from += by;
    layer.to += by;
    if (layer.start) for (let at = 0; at < layer.n; at += 1) layer.start[at] += by;
  };

  /** Categories of the bars of an answer. */
  function categories(answer) {
    const flags = new Uint8Array(256);
    for (const { category } of answer.lanes.values()) if (category) for (let at = 0; at < category.length; at += 1) flags[category[at]] = 1;
    return new Set(Array.from(flags.keys()).filter((one) => flags[one]));
  }

  const finest = (a, b) => a.px - b.px;
  const exact = (answer, id) => answer.lanes.get(id).mode === "exact";
})(window.tracekit.timeline);
