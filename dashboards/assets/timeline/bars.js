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

  /** Rectangles of all lanes by category and opacity, since changing the fill style is slow. */
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
        for (let at = 0; at < set.length; at += 4) pen.fillRect(set[at], set[at + 1], set[at + 2], set[at + 3]);
      }
      pen.globalAlpha = 1;
    }
  }
  const ALPHAS = [1, 0.22, 0.3, 0.08];
  const OPAQUE = 0;
  const DIMMED = 1;
  const TINT = 2;
  const DIMMED_TINT = 3;

  /** Whole pixels of a lane that a layer covers, without those of the finer layer: [left, right] each. */
  function parts(scale, layer, next) {
    const at = (time) => Math.round(Math.min(Math.max(scale.x(time), 0), scale.width));
    const [left, right] = [at(layer.from), at(layer.to)];
    const [cut, on] = next ? [at(next.from), at(next.to)] : [right, right];
    return [[left, Math.min(cut, right)], [Math.max(on, left), right]].filter(([from, to]) => to > from);
  }

  function exactBars(data, row, style, batches, labels, [from, to]) {
    const { scale, off, matching } = style;
    const first = Math.max(0, tl.after(data.start, scale.time(from), data.n) - 1);
    const end = tl.after(data.start, scale.time(to), data.n);
    let painted = -1;
    for (let at = first; at < end; at += 1) {
      const left = scale.x(data.start[at]);
      const right = scale.x(data.start[at] + data.dur[at]);
      if (right < from || (right <= painted && right - left < 1) || off.has(data.category[at])) continue;
      const x = Math.max(left, from);
      const width = Math.min(right, to) - x;
      const highlighted = !matching || matching(data.names[data.name[at]], data.category[at]);
      const category = row.lane.kind === "steps" ? tl.STEPS : data.category[at];
      const wide = width > 3;
      const start = wide ? x : Math.floor(x);
      const drawn = wide ? width - 0.75 : Math.max(1, Math.round(width));
      batches.add(category, highlighted ? OPAQUE : DIMMED, start, row.y, drawn, row.h);
      painted = start + drawn;
      if (width >= NAMED && row.h >= 12) labels.push({ data, at, x, width, row, highlighted });
    }
  }

  /** Paint busy levels; successive columns of one category and height are one rectangle of whole pixels. */
  function densityBars(data, row, style, batches, [from, to]) {
    const { scale, off, matching } = style;
    const px = (data.to - data.from) / data.width;
    const size = px / scale.perPixel;
    const flush = (run) => {
      if (!run || run.end <= run.x) return;
      const { x, end, category, height, highlighted } = run;
      if (height < row.h) batches.add(category, highlighted ? TINT : DIMMED_TINT, x, row.y, end - x, row.h - height);
      batches.add(category, highlighted ? OPAQUE : DIMMED, x, row.y + row.h - height, end - x, height);
    };
    let run = null;
    const first = tl.after(data.column, (scale.time(from) - data.from) / px - 1, data.n) - 1;
    for (let at = Math.max(0, first); at < data.n; at += 1) {
      const left = scale.x(data.from + data.column[at] * px);
      if (left >= to) break;
      const category = data.category[at];
      if (left + size <= from || off.has(category)) continue;
      const start = Math.round(left);
      let x = Math.max(from, start);
      const end = Math.min(to, Math.max(x + 1, Math.round(left + size)));
      const height = row.strip ? row.h : Math.max(2, Math.round((row.h * data.busy[at]) / 255));
      const highlighted = !matching || matching(data.names[data.name[at]], category);
      if (run && x <= run.end && run.category === category && run.height === height && run.highlighted === highlighted) {
        run.end = Math.max(run.end, end);
        continue;
      }
      if (run && x < run.end) {
        if (height > run.height) run.end = x;
        else x = run.end;
        if (end <= x) continue;
      }
      flush(run);
      run = { x, end, category, height, highlighted };
    }
    flush(run);
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
    const batches = new RectBatches();
    for (const row of rows) {
      if (row.kind !== "lane") continue;
      const layers = style.data.layers(row.lane.id, style.scale);
      layers.forEach((layer, place) => {
        const next = layers[place + 1];
        const written = next ? [] : labels;
        const covered = parts(style.scale, layer, next);
        if (layer.mode === "levels") clipped(pen, row, covered, () => tl.paintLevels(pen, layer, row, style));
        else if (layer.mode === "exact") for (const part of covered) exactBars(layer, row, style, batches, written, part);
        else for (const part of covered) densityBars(layer, row, style, batches, part);
      });
    }
    batches.fill(pen, style.colors);
    if (style.bare) return;
    for (const row of rows) if (row.kind === "lane" && tl.hasLevels(row.lane)) tl.writeAxis(pen, row, style);
    writeNames(pen, labels, style);
  };

  function clipped(pen, row, covered, paint) {
    if (!covered.length) return;
    pen.save();
    pen.beginPath();
    for (const [from, to] of covered) pen.rect(from, row.y, to - from, row.h);
    pen.clip();
    paint();
    pen.restore();
  }
})(window.tracekit.timeline);
