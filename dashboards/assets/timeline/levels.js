/* Paint lanes of memory and counters: areas up to the minimum (solid) and maximum (translucent) of each pixel; nothing where the value is unknown. */
"use strict";
window.tracekit = window.tracekit || {};
window.tracekit.timeline = window.tracekit.timeline || {};
(function (tl) {
  const SOFT = 0.38;
  const [AXIS_LEAST, LINE, BACKING] = [28, 13, 0.8];

  /** Whether a lane has a quantity over time in place of intervals. */
  tl.hasLevels = ({ kind }) => kind === "memory" || kind === "counter";

  /** Minimum and maximum of a column; between elements, the last level holds. */
  function of(layer, at, column) {
    if (layer.column[at] === column) return [layer.low[at], layer.high[at]];
    return [layer.last[at], layer.last[at]];
  }

  /** Axis range of a lane, from zero to the limit if there is one. */
  const range = ({ low, high, limit }) => [Math.min(0, low), Math.max(high, limit || 0) || 1];

  /** Paint a lane; its axis covers the whole capture, so that heights are comparable. */
  tl.paintLevels = function (pen, layer, row, style) {
    if (!layer.n) return;
    const { scale, colors } = style;
    const [least, most] = range(row.lane);
    const px = (layer.to - layer.from) / layer.width;
    const y = (value) => row.y + row.h - Math.max(0, ((value - least) / (most - least)) * (row.h - 1));
    const zero = y(0);
    const solid = new Path2D();
    const soft = new Path2D();
    const add = (from, to, low, high) => {
      if (Number.isNaN(low)) return;
      const [left, right] = [scale.x(layer.from + from * px), scale.x(layer.from + to * px)];
      if (right < 0 || left > scale.width) return;
      const [nearer, farther] = Math.abs(low) < Math.abs(high) ? [low, high] : [high, low];
      const base = low < 0 && high > 0 ? 0 : nearer;
      block(solid, left, right, zero, y(base));
      if (low !== high) block(soft, left, right, y(base === 0 ? low < 0 ? low : 0 : base), y(base === 0 ? Math.max(high, 0) : farther));
    };
    for (let at = 0; at < layer.n; at += 1) {
      const column = layer.column[at];
      const next = at + 1 < layer.n ? layer.column[at + 1] : layer.width;
      add(column, column + 1, layer.low[at], layer.high[at]);
      if (next > column + 1) add(column + 1, next, layer.last[at], layer.last[at]);
    }
    pen.fillStyle = colors.memory;
    pen.fill(solid);
    pen.globalAlpha = SOFT;
    pen.fill(soft);
    pen.globalAlpha = 1;
    if (least < 0) {
      pen.fillStyle = colors.dim;
      pen.fillRect(0, Math.round(zero), scale.width, 1);
    }
  };

  function block(path, left, right, a, b) {
    const top = Math.min(a, b);
    path.rect(left, top, Math.max(right - left, 1) + 0.3, Math.max(a, b) - top);
  }

  /** Write the ends of the axis of a lane at its left edge, over its areas. */
  tl.writeAxis = function (pen, row, { colors }) {
    if (row.h < AXIS_LEAST) return;
    const [least, most] = range(row.lane);
    pen.font = colors.font;
    pen.textBaseline = "middle";
    for (const [value, y] of [[most, row.y + LINE / 2], [least, row.y + row.h - LINE / 2]]) {
      const text = tl.amount(value, row.lane.unit);
      pen.globalAlpha = BACKING;
      pen.fillStyle = colors.back;
      pen.fillRect(0, y - LINE / 2, pen.measureText(text).width + 6, LINE);
      pen.globalAlpha = 1;
      pen.fillStyle = colors.ink;
      pen.fillText(text, 3, y + 0.5);
    }
  };

  /** The level at a position: {level, lane, place, low, high, from, to}; null elsewhere. */
  tl.levelAt = function (app, x, y) {
    const place = app.rowAt(y);
    if (!place || place.strip || !tl.hasLevels(place.lane)) return null;
    const layer = app.data.layers(place.lane.id, app.scale).pop();
    if (!layer || !layer.n) return null;
    const px = (layer.to - layer.from) / layer.width;
    const column = Math.floor((app.scale.time(x) - layer.from) / px);
    const at = tl.after(layer.column, column, layer.n) - 1;
    if (at < 0 || column >= layer.width) return null;
    const [low, high] = of(layer, at, column);
    if (Number.isNaN(low)) return null;
    return { level: true, exact: false, lane: place.lane, place, low, high, from: layer.from + column * px, to: layer.from + (column + 1) * px };
  };
})(window.tracekit.timeline);
