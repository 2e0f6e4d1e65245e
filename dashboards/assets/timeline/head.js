/* Overview of the capture with the visible window, ruler, and step bands. */
"use strict";
window.tracekit = window.tracekit || {};
window.tracekit.timeline = window.tracekit.timeline || {};
(function (tl) {
  const OVERVIEW = 36;
  const RULER = 22;
  const GRIP = 5;
  const STRIPS = 8;
  const BANDS = 400;
  tl.HEAD = OVERVIEW + RULER;
  tl.OVERVIEW = OVERVIEW;

  /** Lanes of the overview: the busiest streams, evenly over devices; threads if there is no device. */
  tl.overviewLanes = function (allLanes) {
    const some = allLanes.some((lane) => lane.kind === "device") ? "device" : "host";
    const found = allLanes.filter((lane) => lane.kind === some && lane.depth === 0 && (some === "host" || lane.stream !== null));
    found.sort((a, b) => b.rows - a.rows);
    const counts = new Map();
    const turn = new Map();
    for (const lane of found) {
      const key = `${lane.rank} ${lane.device}`;
      counts.set(key, (counts.get(key) || 0) + 1);
      turn.set(lane, counts.get(key));
    }
    found.sort((a, b) => turn.get(a) - turn.get(b) || b.rows - a.rows);
    return found.slice(0, STRIPS).sort((a, b) => a.id - b.id);
  };

  tl.Head = class {
    constructor(canvas, lanes) {
      this.canvas = canvas;
      this.lanes = lanes;
      this.cache = document.createElement("canvas");
      this.stale = true;
    }

    paint(style) {
      const pen = tl.contextOf(this.canvas, style.scale.width, tl.HEAD);
      pen.fillStyle = style.colors.back;
      pen.fillRect(0, 0, style.scale.width, tl.HEAD);
      this.#overview(pen, style);
      this.#window(pen, style);
      this.#ruler(pen, style);
      return pen;
    }

    #overview(pen, style) {
      const { width } = style.scale;
      if (this.stale || this.cache.width !== this.canvas.width) {
        const whole = new tl.Scale(style.scale.min, style.scale.max, width);
        const height = (OVERVIEW - 6) / Math.max(1, this.lanes.length);
        const rows = this.lanes.map((lane, place) => ({ kind: "lane", lane, y: 3 + place * height, h: Math.max(1, height - (height > 4 ? 1 : 0)), strip: false }));
        const ink = tl.contextOf(this.cache, width, OVERVIEW);
        ink.clearRect(0, 0, width, OVERVIEW);
        tl.paintLanes(ink, rows, { ...style, data: style.data.whole, scale: whole, matching: null, bare: true });
        this.stale = false;
      }
      pen.drawImage(this.cache, 0, 0, width, OVERVIEW);
    }

    /** The visible window in the overview, [left, right], with a minimum width. */
    edges(scale) {
      const all = scale.max - scale.min;
      const left = ((scale.from - scale.min) / all) * scale.width;
      const right = ((scale.to - scale.min) / all) * scale.width;
      const lack = Math.max(0, 6 - (right - left)) / 2;
      return [left - lack, right + lack];
    }

    /** The part of the overview at x: an edge of the window, the window, or outside. */
    part(scale, x) {
      const [left, right] = this.edges(scale);
      if (right - left > 4 * GRIP) {
        if (Math.abs(x - left) <= GRIP) return "left";
        if (Math.abs(x - right) <= GRIP) return "right";
      }
      return x > left && x < right ? "window" : "outside";
    }

    #window(pen, { scale, colors }) {
      const [left, right] = this.edges(scale);
      pen.fillStyle = colors.shade;
      pen.fillRect(0, 0, left, OVERVIEW);
      pen.fillRect(right, 0, scale.width - right, OVERVIEW);
      pen.strokeStyle = colors.accent;
      pen.lineWidth = 1.5;
      pen.strokeRect(left + 0.75, 0.75, Math.max(2, right - left - 1.5), OVERVIEW - 1.5);
      pen.fillStyle = colors.accent;
      for (const x of [left, right - 3]) pen.fillRect(x, OVERVIEW / 2 - 7, 3, 14);
    }

    #ruler(pen, { scale, colors }) {
      const { ticks } = tl.ticks(scale, tl.ROOM);
      pen.font = colors.font;
      pen.textBaseline = "middle";
      pen.strokeStyle = colors.line;
      pen.lineWidth = 1;
      pen.beginPath();
      for (const { at, text } of ticks) {
        const x = Math.round(scale.x(at)) + 0.5;
        pen.moveTo(x, OVERVIEW + 4);
        pen.lineTo(x, tl.HEAD);
        pen.fillStyle = colors.dim;
        if (x + 4 + pen.measureText(text).width < scale.width) pen.fillText(text, x + 4, OVERVIEW + RULER / 2);
      }
      pen.moveTo(0, tl.HEAD - 0.5);
      pen.lineTo(scale.width, tl.HEAD - 0.5);
      pen.stroke();
    }
  };

  /** Size a canvas in CSS pixels for the screen's resolution; return its 2D context. */
  tl.contextOf = function (canvas, width, height) {
    const ratio = Math.min(3, window.devicePixelRatio || 1);
    const [wide, high] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
    if (canvas.width !== wide || canvas.height !== high) {
      canvas.width = wide;
      canvas.height = high;
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    return pen;
  };

  /** Paint the background: alternating step bands, and lines at ruler ticks and, if `style` has `origin`, at zero. */
  tl.paintBackground = function (pen, style, height) {
    const { scale, colors, steps } = style;
    pen.fillStyle = colors.back;
    pen.fillRect(0, 0, scale.width, height);
    const seen = steps.filter((step) => step.end_ns > scale.from && step.start_ns < scale.to);
    pen.fillStyle = colors.band;
    for (const step of seen.length > BANDS ? [] : seen) {
      if (step.place % 2) continue;
      const x = Math.max(0, scale.x(step.start_ns));
      pen.fillRect(x, 0, Math.min(scale.width, scale.x(step.end_ns)) - x, height);
    }
    pen.fillStyle = colors.line;
    pen.globalAlpha = 0.5;
    for (const { at } of tl.ticks(scale, tl.ROOM).ticks) pen.fillRect(Math.round(scale.x(at)), 0, 1, height);
    pen.globalAlpha = 1;
    if (style.origin) {
      pen.fillStyle = colors.accent;
      pen.fillRect(Math.round(scale.x(0)), 0, 1, height);
    }
  };

  /** Paint group headings and separators. */
  tl.paintRows = function (pen, rows, { scale, colors }) {
    for (const row of rows) {
      if (row.kind === "lane") continue;
      pen.fillStyle = row.kind === "group" ? colors.heading : colors.line;
      if (row.kind === "group") pen.fillRect(0, row.y, scale.width, row.h);
      else pen.fillRect(0, row.y + row.h - 1.5, scale.width, 1);
    }
  };
})(window.tracekit.timeline);
