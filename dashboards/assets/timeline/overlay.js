/* Overlay on the lanes: hovered interval, selection with launch arrows, and marked range. */
"use strict";
window.tracekit = window.tracekit || {};
window.tracekit.timeline = window.tracekit.timeline || {};
(function (tl) {
  const ARROWS = 60;

  /** The interval or column at a position: {lane, table, row, name, category, ...}; null without one. */
  tl.hit = function (app, x, y) {
    const place = app.rowAt(y);
    if (!place || place.strip || tl.hasLevels(place.lane)) return null;
    const layers = app.data.layers(place.lane.id, app.scale);
    for (const layer of layers.reverse()) {
      const found = layer.mode === "exact" ? exactHit(app, layer, x) : densityHit(app, layer, x);
      if (found && !app.off.has(layer.category[found.at])) {
        const { at } = found;
        return { ...found, place, lane: place.lane, table: tl.tableOf(place.lane), row: layer.row[at], name: layer.names[layer.name[at]], category: layer.category[at] };
      }
      if (found) return null;
    }
    return null;
  };

  tl.tableOf = (lane) => (lane.kind === "query" ? `sql${lane.query}` : lane.kind === "steps" ? "steps" : lane.kind === "device" || lane.kind === "idle" ? "device_intervals" : "host_intervals");

  function exactHit({ scale }, layer, x) {
    const time = scale.time(x);
    const slack = scale.perPixel * 2;
    const at = tl.after(layer.start, time + slack, layer.n) - 1;
    for (const one of [at, at - 1]) {
      if (one < 0) continue;
      const [start, dur] = [layer.start[one], layer.dur[one]];
      if (start <= time && start + dur >= time) return { at: one, exact: true, start, dur };
    }
    if (at >= 0 && layer.start[at] + layer.dur[at] >= time - slack) return { at, exact: true, start: layer.start[at], dur: layer.dur[at] };
    return null;
  }

  function densityHit({ scale }, layer, x) {
    const px = (layer.to - layer.from) / layer.width;
    const column = (scale.time(x) - layer.from) / px;
    const at = tl.after(layer.column, column, layer.n) - 1;
    if (at < 0 || column - layer.column[at] > 1 + 1.5 * (scale.perPixel / px)) return null;
    return { at, exact: false, count: layer.count[at], busy: layer.busy[at] / 255, from: layer.from + layer.column[at] * px, to: layer.from + (layer.column[at] + 1) * px };
  }

  /** Frame an interval: {lane, start_ns, dur_ns}. */
  tl.frame = function (pen, app, one, color, wide) {
    const place = app.lanes.where.get(one.lane);
    if (!place) return;
    const [left, right] = [app.scale.x(one.start_ns), app.scale.x(one.start_ns + one.dur_ns)];
    if (right < -4 || left > app.scale.width + 4) return;
    const x = Math.max(left, -4);
    pen.strokeStyle = color;
    pen.lineWidth = wide;
    pen.strokeRect(x - 0.5, app.yOf(place) - 0.5, Math.max(3, Math.min(right, app.scale.width + 4) - x + 1), place.h + 1);
  };

  /** Arrow from a launch call to the start of the launched interval. */
  function arrow(pen, app, from, to, single = false) {
    const [a, b] = [app.lanes.where.get(from.lane), app.lanes.where.get(to.lane)];
    if (!a || !b) return;
    const { width } = app.scale;
    const [real, aim] = [app.scale.x(from.start_ns + from.dur_ns / 2), app.scale.x(to.start_ns)];
    if (![real, aim].some((x) => x >= 0 && x <= width)) return;
    const [x0, x1] = [Math.min(Math.max(real, 3), width - 3), Math.min(Math.max(aim, -20), width + 20)];
    const [y0, y1] = [app.yOf(a) + a.h / 2, app.yOf(b) + b.h / 2];
    const bend = Math.min(120, Math.max(24, Math.abs(x1 - x0) / 2));
    pen.setLineDash(x0 === real ? [] : [5, 4]);
    pen.beginPath();
    pen.moveTo(x0, y0);
    pen.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1 - 5, y1);
    pen.stroke();
    pen.setLineDash([]);
    if (single && x0 !== real) chip(pen, app, `called ${tl.time(to.start_ns - from.start_ns)} before`, x0 + (real < 0 ? 90 : -90), y0 - 9);
    pen.beginPath();
    pen.moveTo(x1, y1);
    pen.lineTo(x1 - 7, y1 - 4);
    pen.lineTo(x1 - 7, y1 + 4);
    pen.fill();
    pen.beginPath();
    pen.arc(x0, y0, 2.5, 0, 7);
    pen.fill();
  }

  /** Arrow from the end of an interval to the start of the next on its stream, below their lanes. */
  function hop(pen, app, from, to) {
    const [a, b] = [app.lanes.where.get(from.lane), app.lanes.where.get(to.lane)];
    const { width } = app.scale;
    const [x0, x1] = [app.scale.x(from.start_ns + from.dur_ns), app.scale.x(to.start_ns)];
    if (!a || !b || a.strip || b.strip || x0 > width || x1 < 0) return;
    const [y0, y1] = [app.yOf(a) + a.h, app.yOf(b) + b.h];
    const low = Math.max(y0, y1) + 9;
    const end = Math.min(Math.max(x1, x0 + 6), width + 20);
    pen.strokeStyle = pen.fillStyle = app.colors.ink;
    pen.beginPath();
    pen.moveTo(x0, y0);
    pen.bezierCurveTo(x0, low + 3, end, low + 3, end, y1 + 4);
    pen.stroke();
    pen.beginPath();
    pen.moveTo(end, y1);
    pen.lineTo(end - 4, y1 + 6);
    pen.lineTo(end + 4, y1 + 6);
    pen.fill();
    const gap = to.start_ns - from.start_ns - from.dur_ns;
    const text = gap < 0 ? `overlaps by ${tl.time(-gap)}` : `gap ${tl.time(gap)}`;
    if (end - x0 > 70 && end <= width) chip(pen, app, text, (x0 + end) / 2, low);
  }

  function arrows(pen, app, { info, ...self }) {
    pen.strokeStyle = pen.fillStyle = app.colors.accent;
    pen.lineWidth = 1.5;
    if (info.launch && info.cause === null) arrow(pen, app, info.launch, self, true);
    pen.globalAlpha = info.launched.length > 8 ? 0.5 : 1;
    for (const one of info.launched.slice(0, ARROWS)) arrow(pen, app, self, one);
    pen.globalAlpha = 1;
    if (info.next) hop(pen, app, self, info.next);
  }

  tl.paintSelected = function (pen, app) {
    arrows(pen, app, app.selected);
    tl.frame(pen, app, app.selected, app.colors.back, 4);
    tl.frame(pen, app, app.selected, app.colors.accent, 2.25);
  };

  function marked(pen, app, brush, height) {
    if (brush.lanes && !brush.lanes.length) return;
    const [left, right] = [app.scale.x(brush.from), app.scale.x(brush.to)].sort((a, b) => a - b);
    const all = [{ y: 0, h: height, pinned: true }];
    if (right < 0 || left > app.scale.width) return;
    const places = brush.lanes ? brush.lanes.map((id) => app.lanes.where.get(id)).filter(Boolean) : all;
    pen.fillStyle = app.colors.accent;
    pen.globalAlpha = 0.16;
    for (const place of places) pen.fillRect(left, app.yOf(place) - 1, right - left, place.h + 2);
    pen.globalAlpha = 1;
    const tops = places.map((place) => app.yOf(place));
    const [top, bottom] = [Math.min(...tops), Math.max(...places.map((place, at) => tops[at] + place.h))];
    for (const x of [left, right]) pen.fillRect(Math.round(x) - 0.5, top, 1, bottom - top);
    chip(pen, app, tl.time(Math.abs(brush.to - brush.from)), (left + right) / 2, Math.max(3, top + 3));
  }

  function chip(pen, app, text, middle, y) {
    pen.font = app.colors.font;
    const width = pen.measureText(text).width + 10;
    const x = Math.min(Math.max(middle - width / 2, 2), app.scale.width - width - 2);
    const before = pen.fillStyle;
    pen.fillStyle = app.colors.ink;
    pen.fillRect(x, y, width, 17);
    pen.fillStyle = app.colors.back;
    pen.textBaseline = "middle";
    pen.fillText(text, x + 5, y + 9);
    pen.fillStyle = before;
  }

  tl.paintOverlay = function (canvas, app, height) {
    const { scale, colors, lanes } = app;
    const blank = !(lanes.pinsHeight || app.brush || app.hover || app.selected || app.pointer);
    const size = `${scale.width} ${height}`;
    if (blank && canvas.blank === size) return; // nothing to clear, and the size, which the pointer needs, is that of the lanes
    const pen = tl.contextOf(canvas, scale.width, height);
    pen.clearRect(0, 0, scale.width, height);
    canvas.blank = blank && size;
    if (lanes.pinsHeight) {
      pen.fillStyle = colors.dim;
      pen.fillRect(0, lanes.pinsHeight - 1.5, scale.width, 1.5);
    }
    if (app.brush) marked(pen, app, app.brush, height);
    if (app.hover && app.hover.exact) tl.frame(pen, app, { lane: app.hover.lane.id, start_ns: app.hover.start, dur_ns: app.hover.dur }, colors.ink, 1);
    if (app.selected) app.paintSelection(pen);
    if (app.pointer) {
      pen.fillStyle = colors.dim;
      pen.globalAlpha = 0.5;
      pen.fillRect(Math.round(app.pointer.x), 0, 1, height);
      pen.globalAlpha = 1;
    }
  };
})(window.tracekit.timeline);
