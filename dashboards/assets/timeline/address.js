/* Keep the address in sync with the view (range, selection, marked range, search, sorting, lanes), without a server request. */
"use strict";
window.tracekit = window.tracekit || {};
window.tracekit.timeline = window.tracekit.timeline || {};
(function (tl) {
  const ROW = /^([a-z_]{1,40}\d?):(\d{1,12})$/;
  const WHOLE = /^-?\d{1,18}$/;
  const SLOW = 250;

  const MARK = /^(-?\d{1,18}):(-?\d{1,18})(?::([\d,-]{1,2000}))?$/;
  const SORT = /^(-?)([a-z_]{1,20})$/;
  const MODES = ["regex", "category", "name", "family", "collective"];
  const GO = /^(longest|next|step)(?::(-?\d{1,18}))?(?:@(\d{1,9})?(?:\.(\d{1,9}))?)?$/;
  const LONGEST = 2000;

  /** The place that the address names, which a link to another one changes. */
  const placeOf = () => { const words = new URLSearchParams(window.location.search); return ["from", "to", "row", "go"].map((name) => words.get(name)).join(); };
  const number = (text) => (WHOLE.test(text || "") ? Number(text) : null);
  const keys = (text) => (text || "").split(".").filter((part) => /^l?\d{1,9}$/.test(part)).map((part) => (part[0] === "l" ? part : Number(part)));

  /** Parse which lanes and categories are hidden, and the places of lanes. */
  tl.readArrangement = (words) => ({
    hidden: keys(words.get("hide")), pinned: keys(words.get("pin")), folded: keys(words.get("fold")), order: tl.unranges(words.get("lanes")), off: keys(words.get("off")),
  });

  /** Set these words of an address. */
  tl.writeArrangement = function (set, { lanes, off }) {
    set("hide", [...lanes.hidden].join("."));
    set("pin", [...lanes.pinned].join("."));
    set("fold", [...lanes.folded].join("."));
    set("lanes", tl.runs(lanes.order));
    set("off", [...off].join("."));
  };

  /** Parse the page's address. */
  tl.readAddress = function () {
    const words = new URLSearchParams(window.location.search);
    const row = ROW.exec(words.get("row") || "");
    return {
      from: number(words.get("from")), to: number(words.get("to")),
      row: row ? { table: row[1], row: Number(row[2]) } : null,
      ...tl.readArrangement(words), deep: keys(words.get("deep")), grouping: words.get("group") || "", top: number(words.get("top")) || 0,
      query: { q: (words.get("q") || "").slice(0, LONGEST), mode: MODES.includes(words.get("mode")) ? words.get("mode") : "text", longest: words.get("order") === "longest" },
      go: goal(GO.exec(words.get("go") || "")),
      clocks: words.get("clocks") === "aligned", queries: tl.readQueries(words.get("queries")),
      brush: mark(MARK.exec(words.get("mark") || "")), sort: sorting(SORT.exec(words.get("sort") || "")), all: words.get("rows") === "all",
    };
  };

  const goal = (found) => found && { to: found[1], at: number(found[2]), rank: number(found[3]), device: number(found[4]) };
  const mark = (found) => found && Number(found[1]) < Number(found[2]) && { from: Number(found[1]), to: Number(found[2]), lanes: found[3] ? tl.unranges(found[3]) : null, active: false };
  const sorting = (found) => found && { key: found[2], down: found[1] === "-" };

  tl.Address = class {
    constructor(app) {
      this.app = app;
      this.path = window.location.pathname;
      this.notifiedSearch = window.location.search;
      this.adopt();
      this.later = tl.later(SLOW, () => this.#write(false));
      window.addEventListener("popstate", () => {
        this.later.cancel();
        if (window.location.pathname !== this.path || !this.app.alive) return;
        this.adopt();
        this.app.applyAddress(tl.readAddress(), { back: true });
      }, { signal: app.ending });
      app.ending.addEventListener("abort", () => this.later.cancel());
      const header = document.querySelector(".tk-header");
      for (const name of header ? ["pointerenter", "focusin"] : []) header.addEventListener(name, () => this.notifyDash(), { signal: app.ending });
    }

    /** Take the place in the address as that of this view. */
    adopt() { this.place = placeOf(); }

    /** Whether a link was followed, and its place is not shown yet. */
    get changed() { return placeOf() !== this.place; }

    /** Replace the history entry once changes have paused. */
    replaceEntry() { this.later(); }

    /** Push a history entry for a large change, so that the back button returns to the previous state. */
    pushEntry() {
      this.later.cancel();
      this.#write(false);
      this.push = true;
      this.later();
    }

    flush() {
      this.later.cancel();
      this.#write(false);
    }

    /** Notify Dash of the address before the user changes a picker, which starts from Dash's copy. */
    notifyDash() {
      this.flush();
      if (this.notifiedSearch === window.location.search) return;
      this.notifiedSearch = window.location.search;
      window.dispatchEvent(new CustomEvent("_dashprivate_pushstate"));
    }

    /** Write the state to an address set by others, such as the rank picker. */
    rewrite() {
      const words = this.#words();
      if (`?${words}` !== window.location.search) window.history.replaceState(window.history.state, "", `${this.path}?${words}`);
      this.adopt();
    }

    #words() {
      const { app } = this;
      const words = new URLSearchParams(window.location.search);
      const set = (name, value) => { if (value) words.set(name, value); else words.delete(name); };
      const { from, to } = app.target || app.scale;
      const whole = from <= app.scale.min && to >= app.scale.max;
      set("from", whole ? "" : String(Math.floor(from)));
      set("to", whole ? "" : String(Math.ceil(to)));
      set("row", app.chosen ? `${app.chosen.table}:${app.chosen.row}` : "");
      set("go", "");
      tl.writeArrangement(set, app);
      set("deep", app.lanes.deep.join("."));
      set("group", app.lanes.grouping);
      set("clocks", app.wire.aligned ? "aligned" : "");
      set("queries", app.queries.words);
      set("top", app.stage.top > 0 ? String(Math.round(app.stage.top)) : "");
      this.#search(set);
      this.#table(set);
      return words.toString().replaceAll("%3A", ":").replaceAll("%2C", ",");
    }

    #search(set) {
      const { q, mode, longest } = this.app.search.query;
      const fits = q.length <= LONGEST;
      set("q", fits ? q : "");
      set("mode", q && fits && mode !== "text" ? mode : "");
      set("order", q && fits && longest ? "longest" : "");
    }

    #table(set) {
      const { brush, table } = this.app;
      const lanes = brush && brush.lanes ? `:${tl.ranges(brush.lanes)}` : "";
      set("mark", brush && !brush.active ? `${brush.from}:${brush.to}${lanes}` : "");
      set("sort", table.sorted ? `${table.sort.down ? "-" : ""}${table.sort.key}` : "");
      set("rows", table.all ? "all" : "");
    }

    #write() {
      if (window.location.pathname !== this.path || !this.app.alive) return;
      if (this.changed) return;
      const words = this.#words();
      const search = words ? `?${words}` : "";
      if (search === window.location.search) { this.push = false; return; }
      window.history[this.push ? "pushState" : "replaceState"](window.history.state, "", `${this.path}${search}`);
      this.adopt();
      this.push = false;
    }
  };
})(window.tracekit.timeline);
