/* Lane layout: groups, and folded, hidden and pinned lanes. */
"use strict";
window.tracekit = window.tracekit || {};
window.tracekit.timeline = window.tracekit.timeline || {};
(function (tl) {
  const HEIGHT = { steps: 22, annotation: 18, device: 24, idle: 18, host: 17, memory: 40, counter: 32, query: 20 };
  /** On a phone, whose narrow labels of these lanes take three lines. */
  const NARROW_HEIGHT = { ...HEIGHT, memory: 48, counter: 48 };
  const NARROW = window.matchMedia("(max-width: 600px)");
  const HEADING = 24;
  const STRIP = 4;
  const GAP = 5;
  const DEEP = 8;
  const MANY = 60;

  /** Combine the lanes of a thread or stream into one line. */
  function lines(lanes) {
    const found = [];
    for (const lane of lanes) {
      const last = found[found.length - 1];
      const same = last && lane.depth > 0 && last.group === lane.group && last.title === lane.title && last.kind === lane.kind;
      if (same) last.lanes.push(lane);
      else found.push({ key: lane.id, group: lane.group, title: lane.title, kind: lane.kind, lanes: [lane] });
    }
    return found;
  }

  const KINDS = { steps: "steps", annotation: "annotations", idle: "idle", host: "host threads", memory: "memory", counter: "counters" };

  /** Group of a line; by default the rank's own lanes, each device, and the host. */
  const GROUPINGS = {
    "": (line) => line.group,
    rank: (line) => (line.lanes[0].rank === null ? line.group : `rank ${line.lanes[0].rank}`),
    stream: (line) => (line.kind === "device" ? line.title : KINDS[line.kind]),
    process_group: (line) => (line.lanes[0].process_group ? `process group ${line.lanes[0].process_group}` : "without collectives"),
  };

  const keyOf = (one) => (one.lines ? `g${one.key}` : String(one.key));

  tl.Lanes = class {
    constructor(lanes) {
      this.own = lanes;
      this.ranks = new Set(lanes.map((lane) => lane.rank).filter((rank) => rank !== null)).size;
      this.processGroups = lanes.some((lane) => lane.process_group);
      this.#combine([]);
      this.long = lanes.length > MANY ? this.lines.filter((line) => line.lanes.length > DEEP).map((line) => line.key) : [];
      this.restore({});
    }

    /** Combine the lanes of queries, which come first, and those of the run. */
    #combine(queries) {
      const all = [...queries, ...this.own];
      this.byId = new Map(all.map((lane) => [lane.id, lane]));
      this.lines = this.usual = lines(all);
      this.lineOf = new Map(this.lines.flatMap((line) => line.lanes.map((lane) => [lane.id, line])));
    }

    /** Replace the lanes of queries; everything else stays as arranged. */
    setQueries(queries) {
      const { hidden, pinned, folded, deep, order, grouping } = this;
      this.#combine(queries);
      this.restore({ hidden, pinned, folded, deep, order, grouping });
    }

    /** Apply a layout from an address; everything that is missing is as usual. */
    restore({ hidden, pinned, folded, deep, order, grouping }) {
      Object.assign(this, { hidden: new Set(hidden), pinned: new Set(pinned), folded: new Set(folded), short: new Set(this.long) });
      for (const key of deep || []) this.short.delete(key);
      this.grouping = Object.hasOwn(GROUPINGS, grouping || "") ? grouping || "" : "";
      this.requested = order || []; // may name lanes of queries that are not there yet
      const rank = new Map(this.requested.map((key, place) => [key, place]));
      const of = (line) => rank.get(line.key) ?? Infinity;
      this.lines = [...this.usual].sort((a, b) => (of(a) === of(b) ? 0 : of(a) - of(b)));
      this.place();
    }

    /** Keys of the lines in their order; empty if it is the usual one. */
    get order() { return this.requested.length ? this.requested : this.lines.some((line, place) => line !== this.usual[place]) ? this.lines.map((line) => line.key) : []; }

    /** Keys of the long lines whose levels are all shown. */
    get deep() { return this.long.filter((key) => !this.short.has(key)); }

    /** Whether the layout is not the usual one. */
    get changed() { return Boolean(this.grouping || this.order.length || this.hidden.size || this.pinned.size || this.folded.size); }

    get collapsed() { return this.groups.every((group) => this.folded.has(group.key)); }

    toggle(set, key) {
      if (!this[set].delete(key)) this[set].add(key);
      this.place();
    }

    unhide(key) {
      this.groups.find((one) => one.key === key).lines.forEach((line) => this.hidden.delete(line.key));
      this.place();
    }

    /** Collapse all groups to one line each, or expand them. */
    collapse() {
      const all = this.collapsed;
      for (const group of this.groups) {
        if (all) this.folded.delete(group.key);
        else this.folded.add(group.key);
      }
      this.place();
    }

    group(grouping) {
      for (const group of this.groups) this.folded.delete(group.key);
      this.grouping = grouping;
      this.place();
    }

    /** Move a line within its group, or a group, by one place. Keys of groups start with g. */
    move(key, by) {
      const among = this.#among(key);
      const at = among.findIndex((one) => keyOf(one) === String(key));
      if (at + by >= 0 && at + by < among.length) this.#moveTo(among, at, at + by);
    }

    /** Move a line within its group, or a group, before another one of these; null for the end. */
    moveBefore(key, before) {
      const among = this.#among(key);
      const at = among.findIndex((one) => keyOf(one) === String(key));
      const to = before === null ? among.length : among.findIndex((one) => keyOf(one) === String(before));
      this.#moveTo(among, at, to > at ? to - 1 : to);
    }

    /** What a line or group can be moved among. */
    #among(key) {
      return String(key)[0] === "g" ? this.groups : this.groups.find((one) => one.lines.some((line) => line.key === Number(key))).lines;
    }

    #moveTo(among, at, to) {
      among.splice(to, 0, ...among.splice(at, 1));
      this.requested = [];
      this.lines = this.groups.flatMap((group) => group.lines);
      this.place();
    }

    /** Groups in the order of their first line; the key of a group does not depend on the order. */
    #grouped() {
      const found = new Map();
      for (const line of this.lines) {
        const { query } = line.lanes[0];
        const title = query ? line.group : GROUPINGS[this.grouping](line);
        const key = query || title;
        if (!found.has(key)) found.set(key, { title, query, lines: [] });
        found.get(key).lines.push(line);
      }
      const groups = [...found.values()];
      groups.forEach((group) => { group.key = Math.min(...group.lines.map((line) => line.key)); });
      return groups;
    }

    /** Compute the layout: `pins` from 0, `rows` from 0 below them. */
    place() {
      this.groups = this.#grouped();
      this.pins = [];
      this.rows = [];
      this.where = new Map();
      let y = 0;
      for (const line of this.lines.filter((one) => this.pinned.has(one.key))) y = this.#line(this.pins, line, y, true);
      this.pinsHeight = y ? y + 2 : 0;
      y = 0;
      for (const group of this.groups) {
        const shown = group.lines.filter((line) => !this.hidden.has(line.key) && !this.pinned.has(line.key));
        if (shown.length) y = this.#group(group, shown, y);
      }
      this.height = y;
    }

    #group(group, shown, y) {
      const folded = this.folded.has(group.key);
      const strips = folded ? this.#strips(shown) : [];
      const height = folded ? Math.max(HEADING, 8 + strips.length * (STRIP + 1)) : HEADING;
      this.rows.push({ kind: "group", group, folded, y, h: height });
      strips.forEach((lane, place) => this.#put(this.rows, lane, y + 4 + place * (STRIP + 1), STRIP, false, true));
      y += height;
      if (!folded) for (const line of shown) y = this.#line(this.rows, line, y, false);
      return y + 4;
    }

    #strips(shown) {
      const tops = shown.filter((line) => line.kind !== "idle" && !tl.hasLevels(line)).map((line) => line.lanes[0]);
      return tops.sort((a, b) => b.rows - a.rows).slice(0, 5).sort((a, b) => a.id - b.id);
    }

    #line(rows, line, y, pinned) {
      const depth = this.short.has(line.key) ? Math.min(DEEP, line.lanes.length) : line.lanes.length;
      const lanes = this.folded.has(`l${line.key}`) ? line.lanes.slice(0, 1) : line.lanes.slice(0, depth);
      const height = (NARROW.matches ? NARROW_HEIGHT : HEIGHT)[line.kind] || 18;
      rows.push({ kind: "line", line, y, h: lanes.length * height + GAP, pinned });
      lanes.forEach((lane, place) => this.#put(rows, lane, y + place * height, height, pinned, false));
      return y + lanes.length * height + GAP;
    }

    #put(rows, lane, y, h, pinned, strip) {
      const row = { kind: "lane", lane, y: y + (strip ? 0 : 2), h: strip ? h : h - 2, pinned, strip };
      rows.push(row);
      this.where.set(lane.id, row);
    }

    /** Lanes that intersect a part of the scrolled area, and all pinned ones. */
    visible(top, height) {
      const inside = this.rows.filter((row) => row.kind === "lane" && row.y + row.h > top && row.y < top + height);
      return [...this.pins.filter((row) => row.kind === "lane"), ...inside].map((row) => row.lane.id);
    }

    /** The lane at a vertical position; null between lanes. */
    at(rows, y) {
      return rows.find((row) => row.kind === "lane" && y >= row.y && y < row.y + row.h + 1) || null;
    }

    /** Unfold and unhide a lane. */
    reveal(id) {
      const line = this.lineOf.get(id);
      if (!line) return false;
      this.hidden.delete(line.key);
      const group = this.groups.find((one) => one.lines.includes(line));
      this.folded.delete(group.key);
      const deep = line.lanes.findIndex((lane) => lane.id === id);
      if (deep > 0) this.folded.delete(`l${line.key}`);
      if (deep >= DEEP) this.short.delete(line.key);
      this.place();
      return true;
    }

    /** Visible interval lanes, without steps, which are also annotations. */
    get shown() { return this.lines.filter((line) => !this.hidden.has(line.key) && !line.lanes[0].query && line.kind !== "steps" && !tl.hasLevels(line)).flatMap((line) => line.lanes.map((lane) => lane.id)); }
  };
})(window.tracekit.timeline);
