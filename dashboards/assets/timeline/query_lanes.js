/* Lanes whose intervals a SQL query returns: they are in the address, come first, and are asked for one after the other. */
"use strict";
window.tracekit = window.tracekit || {};
window.tracekit.timeline = window.tracekit.timeline || {};
(function (tl) {
  const MOST = 9;
  const LONGEST = 12000;
  const TABLE = /^sql([1-9])$/;
  const EXAMPLE = "SELECT start_ns, dur_ns, name, rank\nFROM host_intervals\nWHERE name LIKE '%DataLoader%'";
  const COLUMNS = "Columns: start_ns, and dur_ns or end_ns; optional: name, rank.";
  /** Ids of these lanes start here; each query has as many. */
  const ROOM = 1000000;

  /** Whether the id is that of a lane of the run, which the server knows. */
  tl.isOfRun = (id) => id < ROOM;

  /** Parse the queries in an address: [[number, title, SQL], ...]. */
  tl.readQueries = function (text) {
    try {
      const found = JSON.parse(text || "[]");
      const fits = (one) => Array.isArray(one) && Number.isInteger(one[0]) && one[0] > 0 && one[0] <= MOST && typeof one[1] === "string" && typeof one[2] === "string";
      return Array.isArray(found) ? found.filter((one, place) => fits(one) && found.findIndex((other) => other[0] === one[0]) === place).map(([number, title, sql]) => ({ number, title, sql })) : [];
    } catch { // cut off, or written by hand
      return [];
    }
  };

  tl.QueryLanes = class {
    constructor(app, element) {
      Object.assign(this, { app, queries: [], layers: new Map(), turn: Promise.resolve(), edited: null });
      this.list = tl.el("ul", { class: "tkl-relatives" });
      this.title = tl.el("input", { type: "text", class: "tkl-input", maxlength: "60", "aria-label": "Title of the lane", placeholder: "Title of the lane" });
      this.sql = tl.el("textarea", { class: "tkl-input tkl-sql", rows: "4", spellcheck: "false", "aria-label": "Query of the lane", placeholder: EXAMPLE, keydown: (event) => this.#key(event) });
      this.problem = tl.el("p", { class: "tkl-problem", role: "alert", hidden: "" });
      this.save = tl.button("Run the query and show its rows as a lane (Ctrl + Enter)", { click: () => this.#save() }, "Add");
      this.form = tl.el("details", {}, tl.el("summary", {}, "Add a lane"), this.title, this.sql, tl.el("p", { class: "tkl-hint" }, COLUMNS), this.problem, this.save);
      element.append(tl.el("h2", { class: "tkl-subtitle" }, "Lanes from SQL"), this.list, this.form);
    }

    /** What the address says of the queries. */
    get words() { return this.queries.length ? JSON.stringify(this.queries.map(({ number, title, sql }) => [number, title, sql])) : ""; }

    /** Show the form. */
    open() {
      this.app.layout.reveal();
      this.form.open = true;
      this.sql.focus();
    }

    #key(event) {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.#save();
      else if (event.key === "Escape") { this.edit(null); this.app.parts.overlay.focus(); } else return;
      event.preventDefault();
    }

    /** Apply the queries of an address; those that are shown already stay. */
    restore(queries) {
      if (JSON.stringify(queries.map(({ number, title, sql }) => [number, title, sql])) === (this.words || "[]")) return;
      const shown = (query) => this.queries.find((one) => one.number === query.number && one.title === query.title && one.sql === query.sql);
      this.#set(queries.map((query) => shown(query) || { ...query }));
    }

    /** Ask again, since the server's answers have changed. */
    refresh() { this.#set(this.queries.map(({ number, title, sql }) => ({ number, title, sql }))); }

    #set(queries) {
      for (const gone of this.queries.filter((one) => !queries.includes(one))) this.#end(gone);
      this.queries = queries;
      for (const query of queries.filter((one) => !one.ready)) {
        Object.assign(query, { control: new AbortController(), text: "waiting", lanes: [] });
        query.ready = this.turn = this.turn.then(() => this.#run(query));
      }
      this.#show();
    }

    #end(query) {
      query.control.abort();
      if (query.running) this.app.wire.send("query", "DELETE", this.#body(query)).catch(() => {});
    }

    #body({ sql }) { return { sql, ...(this.app.source.rank === null ? {} : { rank: this.app.source.rank }) }; }

    async #run(query) {
      const { app } = this;
      if (query.control.signal.aborted || !app.alive) return;
      Object.assign(query, { running: true, text: "running" });
      this.#show();
      try {
        const found = await app.wire.send("query", "POST", this.#body(query), query.control.signal);
        if (found.error) throw new Error(tl.messageOf(found));
        Object.assign(query, { found, text: describe(found) });
      } catch (error) {
        if (error.name === "AbortError") return;
        query.problem = error.message;
        app.say(`${this.named(query)}: ${error.message}`);
      } finally {
        query.running = false;
      }
      if (app.alive && this.queries.includes(query)) this.#show();
    }

    named({ title, number }) { return tl.clean(title) || `Query ${number}`; }

    async #save() {
      const [title, sql] = [this.title.value.trim(), this.sql.value.trim()];
      const numbers = this.queries.map((one) => one.number);
      const number = this.edited ? this.edited.number : Array.from({ length: MOST }, (_, at) => at + 1).find((one) => !numbers.includes(one));
      const problem = !sql ? "Write a query" : !number ? `There are ${MOST} lanes; remove one` : "";
      this.#tell(problem);
      if (problem) return;
      const others = this.queries.filter((one) => one !== this.edited);
      const queries = [...others, { number, title, sql }].sort((a, b) => a.number - b.number);
      if (JSON.stringify(queries.map((one) => [one.number, one.title, one.sql])).length > LONGEST) { this.#tell("The queries are too long for an address; shorten or remove one"); return; }
      this.edit(null);
      this.form.open = false;
      this.app.parts.overlay.focus({ preventScroll: true });
      this.#set(queries);
      this.app.parts.scroller.scrollTop = 0;
      this.app.address.replaceEntry();
    }

    #tell(problem) {
      this.problem.textContent = problem;
      this.problem.hidden = !problem;
    }

    /** Edit a query by its number; null for a new one. */
    edit(number) {
      this.edited = this.queries.find((one) => one.number === number) || null;
      this.title.value = this.edited ? this.edited.title : "";
      this.sql.value = this.edited ? this.edited.sql : "";
      this.save.textContent = this.edited ? "Save" : "Add";
      this.form.firstChild.textContent = this.edited ? "Edit the lane" : "Add a lane";
      this.#tell("");
      if (this.edited) this.open();
    }

    remove(number) {
      if (this.edited && this.edited.number === number) this.edit(null);
      if (this.app.chosen && this.app.chosen.table === `sql${number}`) this.app.select(null);
      this.#set(this.queries.filter((one) => one.number !== number));
      this.app.address.replaceEntry();
    }

    /** Update the list in the panel, and the lanes. */
    #show() {
      const { app } = this;
      this.layers.clear();
      this.list.replaceChildren(...this.queries.map((query) => this.#entry(query)));
      app.lanes.setQueries(this.queries.flatMap((query) => this.#lanes(query)));
      app.layoutChanged();
    }

    #entry(query) {
      const { number, sql } = query;
      const name = this.named(query);
      const address = `/sql?${new URLSearchParams({ run: this.app.source.run, sql })}`;
      return tl.el("li", {},
        tl.el("div", { class: "tkl-note" }, tl.el("span", { class: "tkl-link-name", title: tl.clean(sql) }, name),
          tl.el("a", { class: "tk-go tk-link", href: address, title: "Open the query on the SQL page" }, "SQL"),
          tl.button(`Edit ${name}`, { class: "tkl-mini", click: () => this.edit(number) }, "✎"),
          tl.button(`Remove ${name}`, { class: "tkl-mini", click: () => this.remove(number) }, "✕")),
        tl.el("p", { class: query.problem ? "tkl-problem" : "tkl-hint", role: query.problem ? "alert" : null }, query.problem ? tl.clean(query.problem) : query.text));
    }

    /** Lanes of a query, and their layers; an empty one while it runs, or if it failed. */
    #lanes(query) {
      const { number, found, problem, text } = query;
      const common = { group: this.named(query), kind: "query", query: number, device: null, stream: null, depth: 0, rows: 0 };
      if (!found || !found.lanes.length) return [{ ...common, id: number * ROOM, title: problem ? tl.clean(problem) : text, rank: null }];
      const places = new Map();
      const name = (row) => (found.names ? found.names[row] : common.group);
      for (const lane of found.lanes) for (const row of lane.row) if (!places.has(name(row))) places.set(name(row), places.size);
      const names = [...places.keys()];
      return found.lanes.map((lane, at) => {
        const id = number * ROOM + at;
        const n = lane.row.length;
        this.layers.set(id, {
          mode: "exact", n, names, from: this.app.scale.min, to: this.app.scale.max, start: Float64Array.from(lane.start), dur: Float64Array.from(lane.dur),
          row: Uint32Array.from(lane.row), name: Uint32Array.from(lane.row, (row) => places.get(name(row))), category: new Uint8Array(n).fill(tl.QUERY),
        });
        return { ...common, id, title: lane.rank === null ? "intervals" : `rank ${lane.rank}`, rank: lane.rank, depth: lane.depth, rows: n };
      });
    }

    /** Details of a row of a query, as those of `row` of the server; null if the table is of the run. */
    row(table, row) {
      const number = TABLE.exec(table);
      return number && this.#row(Number(number[1]), table, row);
    }

    async #row(number, table, row) {
      const query = this.queries.find((one) => one.number === number);
      if (query) await query.ready;
      const place = query && this.#places(query).find((one) => one.row === row);
      if (!place) throw new Error("The selected row is not among those of the query");
      const { found } = query;
      const given = (value, text) => ({ value, text: text ?? (typeof value === "number" ? tl.count(value) : String(value)), meaning: "" });
      const others = found.columns.map((name, at) => [name, given(found.values[row][at])]);
      const fields = { start_ns: given(place.start), dur_ns: given(place.dur, tl.time(place.dur)), name: given(place.name), rank: given(place.rank), ...Object.fromEntries(others) };
      return { table, row, lane: place.lane, start_ns: place.start, query: number, category: null, fields, launch: null, op: null, launched: [], launched_total: 0, parents: [], stack: [], related: {}, next: null, cause: null };
    }

    /** All intervals of a query, by start. */
    #places(query) {
      const lanes = this.app.lanes.usual.flatMap((line) => line.lanes).filter((lane) => lane.query === query.number && this.layers.has(lane.id));
      const all = lanes.flatMap((lane) => {
        const layer = this.layers.get(lane.id);
        return Array.from(layer.row, (row, at) => ({ row, lane: lane.id, rank: lane.rank, start: layer.start[at], dur: layer.dur[at], name: layer.names[layer.name[at]] }));
      });
      return all.sort((a, b) => a.start - b.start || a.lane - b.lane);
    }

    /** The next or previous interval of the same name or in the same lane; after the last comes the first. */
    step({ table, row, lane, name, info }, by, what) {
      const query = this.queries.find((one) => one.number === info.query);
      const places = query ? this.#places(query).filter((one) => (what === "lane" ? one.lane === lane : one.name === name)) : [];
      const at = places.findIndex((one) => one.row === row);
      return at < 0 ? null : { table, row: places[(at + by + places.length) % places.length].row };
    }
  };

  /** What a lane shows of a result, and what not. */
  function describe({ lanes, values, more, without_times: untimed, outside, crowded }) {
    const shown = lanes.reduce((sum, lane) => sum + lane.row.length, 0);
    const some = (count, text) => (count ? `${tl.count(count)} ${text}` : null);
    return [`${tl.count(shown)} ${shown === 1 ? "interval" : "intervals"}`, more && `of the first ${tl.count(values.length)} rows; add WHERE for others`,
      some(untimed, "without start or end"), some(outside, "outside of the capture"), some(crowded, "left out, since over 64 overlap")].filter(Boolean).join(" · ");
  }
})(window.tracekit.timeline);
