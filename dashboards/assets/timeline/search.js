/* Search by name, expression or category: a combobox of the matches, and steps through the matching intervals. */
"use strict";
window.tracekit = window.tracekit || {};
window.tracekit.timeline = window.tracekit.timeline || {};
(function (tl) {
  const PAUSE = 160;
  const LIMIT = 30;
  const MODES = [["text", "Contains"], ["regex", "Expression"], ["category", "Category"], ["name", "Whole name"], ["family", "Kernel family"], ["collective", "Collective"]];
  const WHOLE = ["name", "family", "collective"];
  const EMPTY = { q: "", mode: "text", longest: false };

  tl.Search = class {
    constructor(app, element) {
      Object.assign(this, { app, element, found: [], active: -1, query: EMPTY, total: 0 });
      this.field = tl.el("input", {
        type: "search", class: "tkl-input", id: "timeline-search", placeholder: "Search  /", autocomplete: "off", spellcheck: "false", role: "combobox",
        "aria-label": "Search", "aria-expanded": "false", "aria-controls": "timeline-found", "aria-autocomplete": "list",
        input: () => this.#typed(), keydown: (event) => this.#key(event), focus: () => { if (this.found.length) this.#open(true); },
        blur: () => window.setTimeout(() => this.#open(false), 150),
      });
      this.mode = tl.el("select", { class: "tkl-input tkl-mode", "aria-label": "Search by", title: "Search by part of the name, regular expression, category, whole name, kernel family, or kind of collective (all_reduce)", change: () => { this.filled = false; this.ask(true); } },
        ...MODES.map(([value, text]) => tl.el("option", { value }, text)));
      this.list = tl.el("ul", { class: "tkl-found", id: "timeline-found", role: "listbox", "aria-label": "Matches", hidden: "" });
      this.count = tl.el("span", { class: "tkl-count", role: "status" });
      this.order = tl.button("Step from the longest match to the shortest", { "aria-pressed": "false", click: () => this.#reorder() }, "Longest");
      this.steps = tl.el("span", { class: "tkl-buttons", hidden: "", role: "group", "aria-label": "Matches" },
        tl.button("Previous match (Shift + N)", { click: () => this.step(-1) }, "‹"), tl.button("Next match (N)", { click: () => this.step(1) }, "›"), this.order);
      this.ask = tl.later(PAUSE, (open) => this.#ask(open));
      this.locate = tl.later(PAUSE, () => this.#locate());
      element.append(tl.el("div", { class: "tkl-search" }, this.field, this.list), this.mode, this.count, this.steps);
    }

    focus() { this.field.focus(); this.field.select(); }

    /** Search for something else; an empty query clears the search. */
    set(query) {
      const next = { ...EMPTY, ...query };
      this.filled = WHOLE.includes(next.mode);
      this.field.value = next.q;
      this.mode.value = next.mode;
      this.#press(next.longest);
      this.ask.cancel();
      return this.#ask(false);
    }

    clear() { return this.set(EMPTY); }

    /** A name that was filled in is no longer whole once it is edited. */
    #typed() {
      if (this.filled) { this.mode.value = "text"; this.#press(false); }
      this.filled = false;
      this.ask(true);
    }

    #press(longest) {
      this.longest = longest;
      this.order.setAttribute("aria-pressed", String(longest));
    }

    #reorder() {
      this.#press(!this.longest);
      this.query = { ...this.query, longest: this.longest };
      this.app.address.replaceEntry();
      this.#locate();
    }

    #open(yes) {
      this.list.hidden = !yes;
      this.field.setAttribute("aria-expanded", String(yes));
    }

    get #text() { return this.mode.value === "name" ? this.field.value : this.field.value.trim(); }

    #words(query = this.query) {
      const { rank, device } = this.app.source;
      return { q: query.q, mode: query.mode, rank, device };
    }

    async #ask(open) {
      const q = this.#text;
      if (this.control) this.control.abort();
      this.query = q ? { q, mode: this.mode.value, longest: this.longest } : EMPTY;
      this.app.address.replaceEntry();
      if (!q) { this.#empty(); return; }
      this.control = new AbortController();
      try {
        const found = await this.app.wire.json("search", { ...this.#words(), limit: LIMIT }, this.control.signal);
        this.#show(found, open);
      } catch (error) {
        if (error.name !== "AbortError") this.#show({ total: 0, count: 0, names: [] }, open, error.message);
      }
    }

    #empty() {
      this.found = [];
      this.total = 0;
      this.count.textContent = "";
      this.steps.hidden = true;
      this.#open(false);
      if (this.app.matching) this.app.setMatching(null, null);
    }

    #show(found, open, trouble = "") {
      const { q, mode } = this.query;
      this.found = found.names;
      this.total = found.count;
      this.active = -1;
      const what = mode === "category" ? "category" : "name";
      const rest = found.total - found.names.length;
      const note = trouble || (rest > 0 ? `${tl.count(rest)} more matches; refine the search` : found.total ? null : `No ${what} matches “${q}”.`);
      this.list.replaceChildren(...found.names.map((one, place) => this.#option(one, place)), ...(note ? [tl.el("li", { class: "tkl-hint", role: "presentation" }, note)] : []));
      this.steps.hidden = !found.count;
      this.field.setAttribute("aria-invalid", String(Boolean(trouble)));
      this.#open(open);
      this.#point();
      this.app.say(trouble || `${tl.count(found.total)} ${found.total === 1 ? what : what === "name" ? "names" : "categories"}, ${tl.count(found.count)} ${found.count === 1 ? "interval" : "intervals"}`);
      this.app.setMatching(predicate(this.query, found), mode === "name" ? q : null);
      this.#locate();
    }

    #option(one, place) {
      const name = this.query.mode === "category" ? one.name.replaceAll("_", " ") : tl.brief(one.name);
      return tl.el("li", {
        role: "option", id: `timeline-found-${place}`, title: tl.clean(one.name), "aria-selected": "false",
        mousedown: (event) => { event.preventDefault(); this.#choose(place); },
      }, tl.el("span", { class: "tkl-link-name" }, tl.cut(name, 80)),
      tl.el("span", { class: "tkl-link-time" }, `${tl.count(one.count)} × · ${tl.time(one.sum_ns)}`));
    }

    /** Show the place of the selection among the matches: 3 of 150. */
    async #locate() {
      const { query, app } = this;
      if (!query.q || !this.total) { this.count.textContent = query.q ? "no matches" : ""; return; }
      const found = await this.#step(query, 0).catch(() => null);
      if (found && this.query === query && app.alive) this.#tell(found);
    }

    #tell({ place, total }) {
      this.count.textContent = place ? `${tl.count(place)} of ${tl.count(total)}` : `${tl.count(total)} ${total === 1 ? "match" : "matches"}`;
    }

    #step(query, by) {
      const { app } = this;
      const at = app.selected && app.selected.info.query ? { at: app.selected.start_ns } : app.chosen ? { row: `${app.chosen.table}:${app.chosen.row}` } : { at: Math.floor(app.scale.from) - 1 };
      return app.wire.json("step", { ...this.#words(query), order: query.longest ? "longest" : null, by, ...at }, app.ending);
    }

    /** Select what a link from a table leads to: the longest match, or the first one from a time on; by a part of the name if no name matches. Returns whether there was one. */
    async arrive({ to, at, rank, device }) {
      const { app } = this;
      if (!this.total && WHOLE.includes(this.query.mode)) await this.set({ ...this.query, mode: "text" });
      const where = { ...this.#words(), ...(rank === null ? {} : { rank }), ...(device === null ? {} : { device }) };
      const found = await app.wire.json("step", { ...where, order: to === "longest" ? "longest" : null, by: 1, at }, app.ending);
      if (!found.interval) { app.say(`No interval matches “${tl.clean(this.query.q)}”`); return false; }
      if (!this.total) await this.set(this.query); // causes of idle time have become known
      await app.select({ table: found.interval.table, row: found.interval.row }, { zoom: "near" });
      return true;
    }

    /** Select the next or previous match; without a search, the next interval with the same name. */
    async step(by) {
      if (!this.query.q) { this.app.step(by, "name"); return; }
      await this.app.moves.queued(async () => {
        const { query, app } = this;
        const found = await this.#step(query, by).catch((error) => { app.stage.trouble(error.message); return null; });
        if (!found || !found.interval || this.query !== query) return;
        await app.select({ table: found.interval.table, row: found.interval.row }, { zoom: "seen" });
        this.#tell(found);
      });
    }

    #point() {
      [...this.list.querySelectorAll("[role=option]")].forEach((node, place) => {
        node.setAttribute("aria-selected", String(place === this.active));
        if (place === this.active && !this.list.hidden) node.scrollIntoView({ block: "nearest" });
      });
      if (this.active >= 0) this.field.setAttribute("aria-activedescendant", `timeline-found-${this.active}`);
      else this.field.removeAttribute("aria-activedescendant");
    }

    #key(event) {
      const { key } = event;
      if (key === "ArrowDown" || key === "ArrowUp") {
        event.preventDefault();
        if (!this.found.length) return;
        this.#open(true);
        this.active = key === "ArrowDown" ? (this.active + 1) % this.found.length : (Math.max(this.active, 0) || this.found.length) - 1;
        this.#point();
      } else if (key === "Enter" && this.active >= 0 && !this.list.hidden) this.#choose(this.active);
      else if (key === "Enter") { // keeps the search, and all that matches it
        this.#open(false);
        this.app.parts.overlay.focus({ preventScroll: true });
        this.#enter(event.shiftKey ? -1 : 1);
      }
      else if (key === "Escape") {
        event.preventDefault();
        this.clear();
        this.app.parts.overlay.focus();
      }
    }

    /** Step to a match of what is in the field, also before its search has begun. */
    async #enter(by) {
      this.ask.cancel();
      if (this.#text !== this.query.q || this.mode.value !== this.query.mode) await this.#ask(false);
      await this.step(by);
    }

    #choose(place) {
      const one = this.found[place];
      const mode = this.query.mode === "category" ? "category" : "name";
      this.#open(false);
      this.app.parts.overlay.focus({ preventScroll: true });
      this.app.select({ table: one.first.table, row: one.first.row }, { zoom: "near" });
      this.set({ q: one.name, mode, longest: this.longest });
    }
  };

  /** Whether a bar matches, by its name and category; answers are kept by name. */
  function predicate({ q, mode }, found) {
    if (mode === "category") {
      const ids = new Set(found.categories);
      return (_, category) => ids.has(category);
    }
    if (mode === "name") return (name) => name === q;
    if (["regex", "family", "collective"].includes(mode)) {
      const names = new Set(found.matched);
      return (name) => names.has(name);
    }
    const met = new Map();
    const wanted = q.toLowerCase();
    return (name) => { if (!met.has(name)) met.set(name, name.toLowerCase().includes(wanted)); return met.get(name); };
  }
})(window.tracekit.timeline);
