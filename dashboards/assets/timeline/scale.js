/* Visible time range, and conversion between time and pixels. */
"use strict";
window.tracekit = window.tracekit || {};
window.tracekit.timeline = window.tracekit.timeline || {};
(function (tl) {
  const MIN_SPAN = 20; // ns
  const formats = [];
  tl.ROOM = 100; // pixels between ticks

  tl.Scale = class {
    constructor(min, max, width) {
      this.min = min;
      this.max = Math.max(max, min + MIN_SPAN);
      this.from = this.min;
      this.to = this.max;
      this.width = width;
    }

    get span() { return this.to - this.from; }
    get whole() { return this.from <= this.min && this.to >= this.max; }
    get perPixel() { return this.span / this.width; }
    x(time) { return ((time - this.from) * this.width) / this.span; }
    time(x) { return this.from + (x * this.span) / this.width; }

    /** Set the visible range, clamped to the capture; return whether it changed. */
    setRange(from, to) {
      const span = Math.min(Math.max(to - from, MIN_SPAN), this.max - this.min);
      const middle = (from + to) / 2;
      const start = Math.min(Math.max(middle - span / 2, this.min), this.max - span);
      const changed = start !== this.from || start + span !== this.to;
      this.from = start;
      this.to = start + span;
      return changed;
    }

    /** Zoom by a factor around x. */
    zoom(factor, x) {
      const span = Math.min(Math.max(this.span * factor, MIN_SPAN), this.max - this.min);
      const at = this.time(x);
      const from = at - (x / this.width) * span;
      return this.setRange(from, from + span);
    }

    pan(pixels) {
      const by = pixels * this.perPixel;
      return this.setRange(this.from + by, this.to + by);
    }
  };

  /** Ruler ticks at round times, about every `room` pixels; those of the last range are kept for all that a frame paints. */
  tl.ticks = function (scale, room) {
    const key = `${scale.from} ${scale.to} ${scale.width} ${room}`;
    if (key !== latest.key) latest = { key, ticks: ticks(scale, room) };
    return latest.ticks;
  };
  let latest = { key: "" };

  function ticks(scale, room) {
    const rough = (scale.span * room) / scale.width;
    const power = 10 ** Math.floor(Math.log10(Math.max(rough, 1)));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough) || 10 * power;
    const marks = [];
    const anchor = tl.anchor(scale, step);
    for (let at = Math.ceil(scale.from / step) * step; at <= scale.to; at += step) {
      marks.push({ at, text: tl.instant(at - anchor + 0, step, anchor > 0) }); // + 0: no negative zero
    }
    return { ticks: marks, anchor, step };
  }

  /** Origin of the ruler: 0, or a nearby round time if ticks would need too many digits. */
  tl.anchor = function (scale, step) {
    if (Math.abs(scale.from) < step * 5000) return 0;
    const coarse = 10 ** Math.ceil(Math.log10(scale.span * 2));
    return Math.floor(scale.from / coarse) * coarse;
  };

  tl.instant = function (ns, step, relative) {
    const [size, unit] = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]].find(([unitNs]) => Math.max(Math.abs(ns), step) >= unitNs) || [1, "ns"];
    const places = Math.max(0, Math.ceil(Math.log10(size / step) - 1e-9));
    formats[places] = formats[places] || new Intl.NumberFormat("en-US", { minimumFractionDigits: places, maximumFractionDigits: places });
    const text = formats[places].format(ns / size);
    return `${relative ? "+" : ""}${text} ${unit}`;
  };

  /** Format a time to the nanosecond: 1.234 567 890 s. */
  tl.exactly = function (ns) {
    const rounded = Math.round(Math.abs(ns));
    const rest = String(rounded % 1e9).padStart(9, "0");
    const sign = ns < 0 ? "−" : "";
    return `${sign}${Math.floor(rounded / 1e9).toLocaleString("en-US")}.${rest.slice(0, 3)} ${rest.slice(3, 6)} ${rest.slice(6)} s`;
  };
})(window.tracekit.timeline);
