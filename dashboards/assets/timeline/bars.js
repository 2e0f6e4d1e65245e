/* Paint lanes: bars with names where they fit, or busy levels per pixel column. */
"use strict";
window.tracekit = window.tracekit || {};
window.tracekit.timeline = window.tracekit.timeline || {};
(function (tl) {
  const NAMED = 26;
  const texts = new Map();

  /** Index of the first of the sorted values that is greater (upper bound). */
  tl.after = function (values, wanted, length) {
    let low = 0;
    let high = length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (values[middle] > wanted) high = middle;
      else low = middle + 1;
    }
    return low;
  };

  /** Cut text in the middle to fit a width; empty if too little would remain. */
  tl.fitted = function (pen, text, width) {
    const letters = Math.floor(width / 5.6);
    if (letters < 6 && text.length > letters) return "";
    const key = `${letters} ${text}`;
    let fit = texts.get(key);
    if (fit === undefined) {
      fit = tl.cut(text, letters);
      for (let length = letters; fit && pen.measureText(fit).width > width; length -= 1) fit = length > 6 ? tl.cut(text, length - 1) : "";
      if (texts.size > 30000) texts.clear();
      texts.set(key, fit);
    }
    return fit;
  };

  /** Rectangles by category and opacity, filled in batches, since changing the fill style is slow. */
  class RectBatches {
    constructor() { this.sets = new Map(); }

    add(category, alpha, x, y, w, h) {
      const key = category * 4 + alpha;
      let set = this.sets.get(key);
      if (!set) this.sets.set(key, (set = []));
      set.push(x, y, w, h);
    }

    fill(pen, colors) {
      for (const [key, set] of this.sets) {
        pen.fillStyle = colors.of(key >> 2).fill;
        pen.globalAlpha = ALPHAS[key & 3];
        pen.beginPath();
        for (let at = 0; at < set.length; at += 4) pen.rect(set[at], set[at + 1], set[at + 2], set[at + 3]);
        pen.fill();
      }
      pen.globalAlpha = 1;
    }
  }
  const ALPHAS = [1, 0.22, 0.3, 0.08];
  const OPAQUE = 0;
  const DIMMED = 1;
  const TINT = 2;
  const DIMMED_TINT = 3;

  function exactBars(data, row, style, batches, labels) {
    const { scale, off, matching } = style;
    const first = Math.max(0, tl.after(data.start, scale.from, data.n) - 1);
    const end = tl.after(data.start, scale.to, data.n);
    let painted = -1;
    for (let at = first; at < end; at += 1) {
      const left = scale.x(data.start[at]);
      const right = scale.x(data.start[at] + data.dur[at]);
      if (right < 0 || (right <= painted && right - left < 1) || off.has(data.category[at])) continue;
      const x = Math.max(left, -2);
      const width = Math.min(right, scale.width + 2) - x;
      const drawn = width > 3 ? width - 0.75 : Math.max(width, 1);
      const highlighted = !matching || matching(data.names[data.name[at]], data.category[at]);
      const category = row.lane.kind === "steps" ? tl.STEPS : data.category[at];
      batches.add(category, highlighted ? OPAQUE : DIMMED, x, row.y, drawn, row.h);
      painted = x + drawn;
      if (width >= NAMED && row.h >= 12) labels.push({ data, at, x, width, row, highlighted });
    }
  }

  function densityBars(data, row, style, batches) {
    const { scale, off, matching } = style;
    const px = (data.to - data.from) / data.width;
    const size = px / scale.perPixel;
    const first = tl.after(data.column, (scale.from - data.from) / px - 1, data.n) - 1;
    for (let at = Math.max(0, first); at < data.n; at += 1) {
      const x = scale.x(data.from + data.column[at] * px);
      if (x > scale.width) break;
      const category = data.category[at];
      if (off.has(category)) continue;
      const highlighted = !matching || matching(data.names[data.name[at]], data.category[at]);
      const width = Math.max(size, 1) + 0.3;
      const height = row.strip ? row.h : Math.max(2, (row.h * data.busy[at]) / 255);
      if (height < row.h) batches.add(category, highlighted ? TINT : DIMMED_TINT, x, row.y, width, row.h - height);
      batches.add(category, highlighted ? OPAQUE : DIMMED, x, row.y + row.h - height, width, height);
    }
  }

  function writeNames(pen, labels, style) {
    pen.font = style.colors.font;
    pen.textBaseline = "middle";
    for (const { data, at, x, width, row, highlighted } of labels) {
      const categoryStyle = style.colors.of(row.lane.kind === "steps" ? tl.STEPS : data.category[at]);
      const left = Math.max(x, 0);
      const room = Math.min(x + width, style.scale.width) - left - 7;
      const text = tl.fitted(pen, inside(data, at, categoryStyle, row, room), room);
      if (!text) continue;
      const middle = row.y + row.h / 2 + 0.5;
      if (categoryStyle.hatched) {
        pen.fillStyle = style.colors.back;
        pen.fillRect(left + 2, row.y + 1, pen.measureText(text).width + 4, row.h - 2);
      }
      pen.globalAlpha = highlighted ? 1 : 0.45;
      pen.fillStyle = categoryStyle.ink;
      pen.fillText(text, left + 4, middle);
      pen.globalAlpha = 1;
    }
  }

  /** Text of a bar: its name, or the cause of idle time. */
  function inside(data, at, categoryStyle, row, room) {
    const number = row.lane.kind === "steps" && room < 90 && /#?\d+$/.exec(data.names[data.name[at]]);
    if (number) return number[0];
    if (row.lane.kind === "idle") return categoryStyle.name.replace("idle: ", "").replaceAll("_", " ");
    return tl.brief(data.names[data.name[at]]);
  }

  /** Paint rows of lanes. `style` has scale, data, colors, off (hidden categories), matching (a predicate of name and category, or null). */
  tl.paintLanes = function (pen, rows, style) {
    const labels = [];
    for (const row of rows) {
      if (row.kind !== "lane") continue;
      const layers = style.data.layers(row.lane.id, style.scale);
      layers.forEach((layer, place) => {
        const batches = new RectBatches();
        const next = layers[place + 1];
        pen.save();
        clip(pen, style.scale, row, layer, next);
        const written = next ? [] : labels;
        if (layer.mode === "levels") tl.paintLevels(pen, layer, row, style);
        else if (layer.mode === "exact") exactBars(layer, row, style, batches, written);
        else densityBars(layer, row, style, batches);
        batches.fill(pen, style.colors);
        pen.restore();
      });
    }
    if (!style.bare) writeNames(pen, labels, style);
  };

  /** Clip a layer to its range, without the range of the finer layer. */
  function clip(pen, scale, row, layer, next) {
    const shape = new Path2D();
    const left = Math.max(0, scale.x(layer.from));
    const right = Math.min(scale.width, scale.x(layer.to));
    const [cutLeft, cutRight] = next ? [scale.x(next.from), scale.x(next.to)] : [right, right];
    const add = (from, to) => { if (to > from) shape.rect(from, row.y, to - from, row.h); };
    add(left, Math.min(cutLeft, right));
    add(Math.max(cutRight, left), right);
    if (left < right) pen.clip(shape);
  }
})(window.tracekit.timeline);
