/* Lanes of the two runs on a common time axis: layout, data, painting and text. */
"use strict";
window.tracekit = window.tracekit || {};
window.tracekit.aligned = window.tracekit.aligned || {};
(function (al) {
  const RULER = 22;
  const GAP = 26;
  const NARROW = 560;
  const HEIGHT = { steps: 18, device: 20, idle: 14, host: 15 };
  const STREAMS = 4;
  const THREADS = 2;
  const DEPTH = { device: 4, host: 6 };
  const tl = () => window.tracekit.timeline;

  /** Width of the lane titles; none on a phone. */
  al.gutter = (element) => (element.clientWidth < NARROW ? 0 : 132);

  /** The lanes to show of a rank: its steps, busiest streams, idle time, and busiest threads. */
  function chosen(lanes, rank, device) {
    const own = lanes.filter((lane) => lane.rank === rank);
    const of = (kind) => own.filter((lane) => lane.kind === kind);
    const busiest = (found, most) => {
      const rows = new Map();
      for (const lane of found) rows.set(lane.title, (rows.get(lane.title) || 0) + lane.rows);
      const kept = [...rows.keys()].sort((a, b) => rows.get(b) - rows.get(a)).slice(0, most);
      return found.filter((lane) => kept.includes(lane.title));
    };
    const depth = device ? DEPTH.device : DEPTH.host;
    const streams = device ? [...busiest(of("device"), STREAMS).filter((lane) => lane.depth === 0), ...of("idle").slice(0, 1)] : [];
    return [...of("steps"), ...streams, ...busiest(of("host"), device ? 1 : THREADS).filter((lane) => lane.depth < depth)];
  }

  /** One run: its lanes, and its data on the common axis. */
  al.Side = class {
    constructor(app, run, info, { letter, device }) {
      Object.assign(this, { app, run, info, letter, device, origin: 0, off: app.off });
      this.wire = new (tl().Wire)(run);
      this.rank = null;
      const part = (name) => () => this.#part()[name];
      const clamped = Object.defineProperties({}, Object.fromEntries(["min", "max", "from", "to", "width", "span", "perPixel"].map((name) => [name, { get: part(name) }])));
      this.drawn = new (tl().Data)(this.wire, clamped, {
        lanes: () => this.rows.map((row) => row.lane.id), always: [], arrived: () => { al.legend(app); app.redraw(); }, failed: (error) => al.say(app, error.message),
      });
      this.data = { layers: (id) => this.drawn.layers(id, clamped) };
    }

    /** The part of the view in which this run was recorded, on its own clock. */
    #part() {
      const { scale } = this.app;
      const { start_ns: min, end_ns: max } = this.info;
      const from = Math.max(scale.from + this.origin, min);
      const to = Math.max(from + 1, Math.min(scale.to + this.origin, max));
      return { min, max, from, to, span: to - from, width: Math.max(1, (to - from) / scale.perPixel), perPixel: scale.perPixel };
    }

    get visible() {
      const { scale } = this.app;
      return scale.from + this.origin < this.info.end_ns && scale.to + this.origin > this.info.start_ns;
    }

    want() { if (this.visible) this.drawn.want(); }

    /** Scale of this run's clock. */
    get scale() {
      const { scale } = this.app;
      const { origin } = this;
      return {
        from: scale.from + origin, to: scale.to + origin, width: scale.width, span: scale.span, perPixel: scale.perPixel,
        x: (time) => scale.x(time - origin), time: (x) => scale.time(x) + origin,
      };
    }

    /** Lay the lanes out from a height on; returns the height below them. */
    layout(top, rank) {
      if (this.rank !== rank) {
        this.rank = rank;
        this.lanes = chosen(this.info.lanes, rank, this.device);
      }
      let y = top;
      this.top = top;
      this.rows = this.lanes.map((lane) => {
        const h = HEIGHT[lane.kind];
        const row = { kind: "lane", lane, y, h: h - 1 };
        y += h;
        return row;
      });
      this.bottom = y;
      return y;
    }

    rowAt(y) { return this.rows.find((row) => y >= row.y && y < row.y + row.h + 1) || null; }

    /** Lane, name, start and duration of a row of a table. */
    async interval(table, row) {
      const { lane, fields, category } = await this.wire.row(table, row);
      return { lane, category, name: fields.name.value, start_ns: fields.start_ns.value, dur_ns: fields.dur_ns.value };
    }
  };

  /** Lay out both runs; returns the height of the drawing. */
  al.layout = function (app) {
    const { rank } = app.steps[app.step];
    const middle = app.sides[0].layout(RULER, rank[0]);
    return app.sides[1].layout(middle + GAP, rank[1]) + 4;
  };

  al.paint = function (app) {
    const { scale, parts, colors } = app;
    const height = al.layout(app);
    for (const side of app.sides) side.want();
    const left = al.gutter(app.element);
    parts.stage.style.height = `${height}px`;
    const pen = tl().contextOf(parts.canvas, left + scale.width, height);
    pen.fillStyle = colors.back;
    pen.fillRect(0, 0, left + scale.width, height);
    ruler(pen, app, left, height);
    for (const side of app.sides) {
      pen.save();
      pen.beginPath();
      pen.rect(left, 0, scale.width, height);
      pen.clip();
      pen.translate(left, 0);
      tl().paintLanes(pen, side.rows, { scale: side.scale, data: side.data, colors, off: side.off, matching: null });
      pen.restore();
      titles(pen, side, colors, left);
    }
    pen.save();
    pen.translate(left, 0);
    pen.beginPath();
    pen.rect(0, RULER, scale.width, height);
    pen.clip();
    link(pen, app);
    pen.restore();
    parts.canvas.dataset.settled = String(app.sides.every((side) => !side.visible || side.drawn.settled));
  };

  function ruler(pen, app, left, height) {
    const { scale, colors } = app;
    const { ticks, anchor } = tl().ticks(scale, tl().ROOM);
    pen.font = colors.font;
    pen.textBaseline = "middle";
    for (const { at, text } of ticks) {
      const x = Math.round(left + scale.x(at));
      pen.fillStyle = colors.line;
      pen.fillRect(x, RULER - 5, 1, height);
      pen.fillStyle = colors.dim;
      pen.fillText(text, x + 3, RULER / 2);
    }
    if (anchor && left) pen.fillText(`+ ${tl().time(anchor)}`, 6, RULER / 2);
    const zero = left + scale.x(0);
    if (zero < left || zero > left + scale.width) return;
    pen.fillStyle = colors.accent;
    pen.fillRect(Math.round(zero), RULER - 5, 1, height);
  }

  function titles(pen, side, colors, left) {
    pen.font = colors.font;
    pen.textBaseline = "middle";
    pen.fillStyle = colors.ink;
    let before = "";
    for (const row of side.rows) {
      const title = row.lane.kind === "steps" ? `${side.letter} · steps` : row.lane.title;
      if (left && title !== before) pen.fillText(tl().fitted(pen, tl().clean(title), left - 12), 6, row.y + row.h / 2);
      before = title;
    }
    if (!left) letter(pen, side, colors);
  }

  /** Mark a run whose lanes have no titles. */
  function letter(pen, side, colors) {
    pen.fillStyle = colors.ink;
    pen.fillRect(0, side.top, 16, HEIGHT.steps - 1);
    pen.fillStyle = colors.back;
    pen.fillText(side.letter, 4, side.top + HEIGHT.steps / 2);
  }

  /** Show the categories of what is drawn; a click hides one. */
  al.legend = function (app) {
    const seen = new Set();
    for (const side of app.sides) for (const answer of side.drawn.answers.slice(0, 2)) for (const lane of answer.lanes.values()) for (const one of lane.category || []) seen.add(one);
    app.parts.legend.show(app.colors, seen, app.off);
  };

  /** Frame the selected intervals, and join those of both runs. */
  function link(pen, app) {
    if (!app.match) return;
    const boxes = app.match.intervals.map((one, at) => {
      const row = one && app.sides[at].rows.find((each) => each.lane.id === one.lane);
      if (!row) return null;
      const x = app.sides[at].scale.x(one.start_ns);
      return { x, w: Math.max(2, app.sides[at].scale.x(one.start_ns + one.dur_ns) - x), y: row.y, h: row.h };
    });
    pen.strokeStyle = pen.fillStyle = app.colors.accent;
    const [a, b] = boxes;
    if (a && b) {
      pen.globalAlpha = 0.22;
      pen.beginPath();
      pen.moveTo(a.x, a.y + a.h);
      pen.lineTo(a.x + a.w, a.y + a.h);
      pen.lineTo(b.x + b.w, b.y);
      pen.lineTo(b.x, b.y);
      pen.fill();
      pen.globalAlpha = 1;
      pen.lineWidth = 1;
      pen.beginPath();
      pen.moveTo(a.x, a.y + a.h);
      pen.lineTo(b.x, b.y);
      pen.moveTo(a.x + a.w, a.y + a.h);
      pen.lineTo(b.x + b.w, b.y);
      pen.stroke();
    }
    pen.lineWidth = 2;
    for (const box of boxes.filter(Boolean)) pen.strokeRect(box.x - 1, box.y - 1, box.w + 2, box.h + 2);
  }

  al.say = (app, text) => { app.parts.said.textContent = text; };

  const HINT = "Select an interval to see its match. Drag or A, D pan; W, S or Ctrl and the wheel zoom; 0 shows the step; period and comma go to the next and previous interval, brackets to the next and previous step.";

  /** Write the state in words: the step, and the selected pair with its difference. */
  al.describe = function (app) {
    const { parts, match } = app;
    const step = app.steps[app.step];
    const numbers = step.number[0] < 0 ? "whole captures" : `step ${step.number[0]} of A, ${step.number[1]} of B`;
    const several = new Set(app.steps.map((one) => one.rank.join())).size > 1;
    const ranks = step.rank[0] === step.rank[1] ? `rank ${step.rank[0]}` : `rank ${step.rank[0]} of A, ${step.rank[1]} of B`;
    parts.step.textContent = `${app.step + 1} of ${app.steps.length}: ${several ? `${ranks}, ` : ""}${numbers}`;
    parts.earlier.disabled = app.step === 0;
    parts.later.disabled = app.step === app.steps.length - 1;
    for (const [name, button] of Object.entries(parts.modes)) button.setAttribute("aria-pressed", String(app.align === name));
    parts.opened.replaceChildren();
    al.say(app, match ? match.text : HINT);
    if (!match) return;
    match.intervals.forEach((one, at) => {
      if (!one) return;
      const words = new URLSearchParams({ run: app.sides[at].run, row: `${match.table}:${match.rows[at]}` });
      parts.opened.append(tl().el("a", { class: "tk-go", href: `/timeline?${words.toString().replace("%3A", ":")}` }, `Timeline of ${app.sides[at].letter}`));
    });
  };
})(window.tracekit.aligned);
