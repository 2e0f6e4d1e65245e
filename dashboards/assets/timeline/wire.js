/* Client of the server's routes: JSON, and binary drawing data. */
"use strict";
window.tracekit = window.tracekit || {};
window.tracekit.timeline = window.tracekit.timeline || {};
(function (tl) {
  const KINDS = {
    start: Float64Array, dur: Float64Array, row: Uint32Array, name: Uint32Array, category: Uint8Array,
    column: Uint16Array, busy: Uint8Array, count: Uint32Array, low: Float64Array, high: Float64Array, last: Float64Array,
  };
  const MAGIC = "TKT1";

  /** Decode drawing data: {from, to, width, lanes: Map of lane id to arrays}. Arrays are views of the buffer. */
  tl.decode = function (buffer) {
    const bytes = new Uint8Array(buffer);
    if (String.fromCharCode(...bytes.subarray(0, 4)) !== MAGIC) throw new Error("unexpected response format");
    const length = new DataView(buffer).getUint32(4, true);
    const header = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + length)));
    const base = 8 + length;
    const lanes = new Map();
    for (const lane of header.lanes) {
      const decoded = { mode: lane.mode, n: lane.n, names: header.names, from: header.from, to: header.to, width: header.width };
      for (const [name, at] of Object.entries(lane.at)) {
        if (KINDS[name]) decoded[name] = new KINDS[name](buffer, base + at, lane.n);
      }
      lanes.set(lane.id, decoded);
    }
    return { from: header.from, to: header.to, width: header.width, lanes, header };
  };

  /** Format lane numbers as ranges: 1-3,7. */
  tl.ranges = (ids) => tl.runs([...ids].sort((a, b) => a - b));

  /** Format numbers in their order, with runs of successive ones as ranges: 4-6,1-3. */
  tl.runs = function (ids) {
    const parts = [];
    for (const id of ids) {
      const last = parts[parts.length - 1];
      if (last && last[1] === id - 1) last[1] = id;
      else parts.push([id, id]);
    }
    return parts.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(",");
  };

  tl.unranges = (text) => (text || "").split(",").flatMap((part) => {
    const [first, last] = part.split("-").map(Number);
    if (!/^\d+(-\d+)?$/.test(part)) return [];
    return Array.from({ length: Math.min(2000, (last ?? first) - first + 1) }, (_, place) => first + place);
  });

  /** The server's message of an error, and what to do. */
  tl.messageOf = ({ error, hint }) => (hint ? `${error} (${hint})` : error);

  /* The lanes of the page that is opened, which the server reads while further scripts load. */
  const search = new URLSearchParams(window.location.search);
  const isWhole = search.has("run") && !["rank", "device", "clocks"].some((name) => search.has(name));
  const early = { address: `/timeline/${encodeURIComponent(search.get("run"))}/lanes` };
  if (isWhole && window.location.pathname === "/timeline") {
    early.answer = fetch(early.address);
    early.answer.catch(() => {}); // the one who asks is told
  }

  function read(address, signal) {
    const { answer } = early;
    if (!answer || address !== early.address) return fetch(address, { signal });
    early.answer = null;
    return answer;
  }

  /** Raise an error with the server's message. */
  tl.refused = async function (answer) {
    const details = await answer.json().catch(() => ({}));
    throw new Error(details.error ? tl.messageOf(details) : `the server returned status ${answer.status}`);
  };

  /** Routes of a run; errors have the server's message. */
  tl.Wire = class {
    constructor(run) {
      this.base = `/timeline/${encodeURIComponent(run)}`;
      this.rows = new Map();
      this.aligned = false;
    }

    async ask(path, words, signal) {
      const query = new URLSearchParams();
      for (const [name, value] of Object.entries(words || {})) {
        if (value !== null && value !== undefined && value !== "") query.set(name, value);
      }
      if (this.aligned) query.set("clocks", "aligned");
      const answer = await read(`${this.base}/${path}${query.size ? `?${query}` : ""}`, signal);
      if (!answer.ok) await tl.refused(answer);
      return answer;
    }

    async json(path, words, signal) {
      return (await this.ask(path, words, signal)).json();
    }

    /** Change something of the run; returns the answer. */
    async send(path, method, body, signal) {
      const answer = await fetch(`${this.base}/${path}${this.aligned ? "?clocks=aligned" : ""}`, { method, signal, headers: { "Content-Type": "application/json" }, body: body && JSON.stringify(body) });
      if (!answer.ok) await tl.refused(answer);
      return answer.json();
    }

    async draw(window, signal) {
      const { from, to, width, lanes } = window;
      const answer = await this.ask("draw", { from, to, width, lanes: tl.ranges(lanes) }, signal);
      return tl.decode(await answer.arrayBuffer());
    }

    /** All fields of a row; the last few hundred are cached. */
    row(table, row) {
      const key = `${table}/${row}`;
      if (!this.rows.has(key)) {
        if (this.rows.size > 300) this.rows.clear();
        const asked = this.json(`row/${key}`);
        asked.catch(() => this.rows.delete(key));
        this.rows.set(key, asked);
      }
      return this.rows.get(key);
    }
  };
})(window.tracekit.timeline);
