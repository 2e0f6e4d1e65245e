/* What two runs on one time axis have besides the lanes: their data on that axis, the toolbar, and the selection in words. */
"use strict";
window.tracekit = window.tracekit || {};
window.tracekit.timeline = window.tracekit.timeline || {};
(function (tl) {
  const STREAMS = 4;
  const THREADS = 2;
  const DEPTH = { device: 4, host: 6 };
  const STAMP = /^\d{8}T\d{6}Z-/;
  /** Lanes of the second run have ids from here on. */
  const SECOND = 500000;
  const HINT = "Select an interval to see its match. Drag or A, D pan; W, S or Ctrl and the wheel zoom; 0 shows the step; period and comma go to the next and previous interval, brackets to the next and previous step.";

  tl.sideOf = (id) => (id < SECOND ? 0 : 1);
  tl.pairTitle = () => tl.el("h2", { class: "tka-title" }, "Both runs on one time axis");

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

  /** One of the runs, and the time of its clock that is at zero of the common axis. */
  tl.Side = class {
    constructor(run, info, { at, device, origin }) {
      Object.assign(this, { run, info, at, device, origin, letter: "AB"[at], wire: new tl.Wire(run) });
    }

    lanes(rank) {
      const group = `${this.letter} · ${tl.clean(this.run.replace(STAMP, ""))}`;
      return chosen(this.info.lanes, rank, this.device).map((lane) => ({ ...lane, id: lane.id + this.at * SECOND, side: this.at, group }));
    }

    /** Place of a row on the common axis. */
    place({ lane, start_ns: start, fields }) {
      return { lane: lane === null ? null : lane + this.at * SECOND, start_ns: start - this.origin, dur_ns: fields.dur_ns.value };
    }
  };

  /** Drawing data of both runs on the common axis. */
  tl.PairWire = class {
    constructor(sides) { this.sides = sides; }

    async draw({ lanes, ...window }, signal) {
      const answers = await Promise.all(this.sides.map((side) => this.#draw(side, lanes.filter((id) => tl.sideOf(id) === side.at), window, signal)));
      return { ...window, lanes: new Map(answers.flatMap((answer) => [...answer])) };
    }

    async #draw({ wire, at, origin }, ids, { from, to, width }, signal) {
      if (!ids.length) return [];
      const { lanes } = await wire.draw({ from: from + origin, to: to + origin, width, lanes: ids.map((id) => id - at * SECOND) }, signal);
      for (const layer of lanes.values()) tl.moveLayer(layer, -origin);
      return [...lanes].map(([id, layer]) => [id + at * SECOND, layer]);
    }
  };

  /** Build the toolbar, the lanes and the text below them. */
  tl.buildPair = function (app, info) {
    const mode = (name, text, title) => tl.button(title, { "aria-label": null, click: () => app.alignBy(name) }, text);
    const own = {
      earlier: tl.button("Previous step ([)", { click: () => app.goToStep(app.step - 1) }, "‹"),
      later: tl.button("Next step (])", { click: () => app.goToStep(app.step + 1) }, "›"),
      step: tl.el("span", { class: "tka-step" }),
      modes: { step: mode("step", "by step", "Start of the step of both runs at zero"), op: mode("op", "by op", "Start of the selected interval and of its match at zero") },
      status: tl.el("p", { class: "tka-said", role: "status", "aria-live": "polite" }),
      opened: tl.el("span", { class: "tka-opened" }),
    };
    const bar = tl.el("div", { class: "tkl-controls tka-bar" },
      tl.el("span", { class: "tk-chips-label" }, "Align"), tl.buttons("Align", own.modes.step, own.modes.op),
      tl.buttons("Step", own.earlier, own.later), own.step, tl.zoomButtons(app, tl.button("Show the step (0)", { click: () => app.show(() => app.fit()) }, "Step")));
    app.assemble(info, (parts, legend) => {
      Object.assign(parts, own);
      app.element.replaceChildren(tl.pairTitle(), bar, parts.stage, legend, tl.el("div", { class: "tka-below" }, own.status, own.opened), app.tooltip.node);
    });
  };

  /** Join the places of both runs, if both are known and their lanes shown. */
  tl.paintLink = function (pen, app, places) {
    const [a, b] = places.map((place) => {
      const row = place && app.lanes.where.get(place.lane);
      if (!row) return null;
      const x = app.scale.x(place.start_ns);
      return { x, end: Math.max(x + 2, app.scale.x(place.start_ns + place.dur_ns)), y: app.yOf(row), h: row.h };
    });
    if (!a || !b) return;
    pen.strokeStyle = pen.fillStyle = app.colors.accent;
    pen.lineWidth = 1;
    pen.globalAlpha = 0.22;
    pen.beginPath();
    pen.moveTo(a.x, a.y + a.h);
    pen.lineTo(a.end, a.y + a.h);
    pen.lineTo(b.end, b.y);
    pen.lineTo(b.x, b.y);
    pen.fill();
    pen.globalAlpha = 1;
    pen.beginPath();
    for (const edge of ["x", "end"]) {
      pen.moveTo(a[edge], a.y + a.h);
      pen.lineTo(b[edge], b.y);
    }
    pen.stroke();
  };

  /** Write the state in words: the step, and the selected pair with its difference. */
  tl.describePair = function (app) {
    const { parts, selected } = app;
    const { number, rank } = app.pairs[app.step];
    const numbers = number[0] < 0 ? "whole captures" : `step ${number[0]} of A, ${number[1]} of B`;
    const several = new Set(app.pairs.map((one) => one.rank.join())).size > 1;
    const ranks = rank[0] === rank[1] ? `rank ${rank[0]}` : `rank ${rank[0]} of A, ${rank[1]} of B`;
    parts.step.textContent = `${app.step + 1} of ${app.pairs.length}: ${several ? `${ranks}, ` : ""}${numbers}`;
    parts.earlier.disabled = app.step === 0;
    parts.later.disabled = app.step === app.pairs.length - 1;
    for (const [name, button] of Object.entries(parts.modes)) button.setAttribute("aria-pressed", String(app.align === name));
    app.say(selected ? selected.text : HINT);
    const link = ({ run, letter }, row) => {
      const words = new URLSearchParams({ run, row: `${selected.table}:${row}` });
      return tl.el("a", { class: "tk-go", href: `/timeline?${words.toString().replace("%3A", ":")}` }, `Timeline of ${letter}`);
    };
    parts.opened.replaceChildren(...app.sides.filter((_, at) => selected && selected.infos[at]).map((side) => link(side, selected.rows[side.at])));
  };
})(window.tracekit.timeline);
