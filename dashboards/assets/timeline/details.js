/* Details of the selected interval: fields, launch, launched intervals, parents, stack. */
"use strict";
window.tracekit = window.tracekit || {};
window.tracekit.timeline = window.tracekit.timeline || {};
(function (tl) {
  const FIRST = ["start_ns", "dur_ns"];
  const OMITTED = new Set(["name", "row_id", "stack", "launch_row", "op_row", "parent_row", "idle_op_row", "idle_cause", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"]);
  const SHORT = 12;
  const LONG = 320;

  const NAMES = { dur: "duration", start: "start" };
  const pair = (label, value, meaning) => [tl.el("div", {}, tl.el("dt", { title: meaning }, NAMES[label] || label), tl.el("dd", {}, value))];
  const words = (name) => name.replace(/_ns$|_pct$/, "").replaceAll("_", " ");

  function extent(fields, what) {
    const axes = ["x", "y", "z"].map((axis) => fields[`${what}_${axis}`]);
    if (!axes[0] || axes[0].value === null) return [];
    return pair(what, axes.map((one) => tl.count(one.value)).join(" × "), `${what} of the launch, in x, y and z`);
  }

  /** A duration with all its digits. */
  const lasting = ({ text, value }) => (text.endsWith(" ns") ? text : `${text} (${tl.count(value)} ns)`);

  function facts(app, info) {
    const { fields } = info;
    const made = [];
    for (const name of FIRST) {
      if (fields[name]) made.push(...pair(words(name), name === "start_ns" ? tl.exactly(info.start_ns) : lasting(fields[name]), fields[name].meaning));
    }
    const recorded = fields.start_ns.value;
    if (recorded !== info.start_ns) made.splice(1, 0, ...pair("recorded start", tl.exactly(recorded), "start by the clock of the rank"));
    const place = info.lane === null ? null : app.lanes.byId.get(info.lane);
    if (place) made.push(...pair("lane", `${place.group} · ${tl.clean(place.title)}`, "lane of the interval"));
    if (info.cause) made.push(...pair("idle cause", info.cause.replaceAll("_", " "), "from the idle_gaps analysis"));
    if (info.idle_op) made.push(...pair("blocked by", tl.named(info.idle_op, 60), "op that blocked the device"));
    if (info.source) made.push(...pair("source line", tl.clean(info.source), "line of the program that issued that op"));
    made.push(...extent(fields, "grid"), ...extent(fields, "block"));
    for (const [name, field] of Object.entries({ ...fields, ...info.related })) {
      if (FIRST.includes(name) || OMITTED.has(name) || field.value === null) continue;
      made.push(...pair(words(name), tl.clean(field.text), field.meaning));
    }
    return tl.el("dl", { class: "tkl-facts" }, ...made);
  }

  tl.Details = class {
    constructor(app, element) {
      Object.assign(this, { app, element });
      this.show(null);
    }

    show(info) {
      this.element.classList.toggle("tkl-has", Boolean(info));
      if (!info) {
        this.element.replaceChildren(tl.el("h2", { class: "tkl-subtitle" }, "Selection"),
          tl.el("p", { class: "tkl-hint" }, "Click an interval to see its fields, launch and stack. Press ? for shortcuts."));
        return;
      }
      const title = info.cause === null && info.fields.name ? info.fields.name.value : tl.titleOf(info);
      this.element.replaceChildren(
        tl.el("div", { class: "tkl-detail-head" }, tl.el("h2", { class: "tkl-subtitle" }, "Selection"), ...this.#buttons(info, title)),
        ...this.#name(tl.clean(title)),
        facts(this.app, info),
        ...this.#relatives(info),
        ...this.#stack(info),
      );
      this.element.scrollTop = 0;
    }

    /** The name, of a very long one both ends until all is asked for. */
    #name(text) {
      const name = tl.el("p", { class: "tkl-full" }, tl.cut(text, LONG));
      const all = text.length > LONG ? tl.button("Show the whole name", { class: "tkl-button tkl-whole", click: () => { name.textContent = text; all.remove(); } }) : null;
      return all ? [name, all] : [name];
    }

    #buttons(info, title) {
      const { app } = this;
      const raw = Object.fromEntries(Object.entries(info.fields).map(([name, field]) => [name, field.value]));
      const everyOne = info.cause === null ? { q: info.fields.name.value, mode: "name" } : { q: info.category, mode: "category" };
      const all = tl.copyButton(JSON.stringify(raw, null, 1), "all fields as JSON");
      all.textContent = "JSON";
      return [
        tl.button("Previous with this name (,)", { click: () => app.step(-1, "name") }, "‹"),
        tl.button("Next with this name (.)", { click: () => app.step(1, "name") }, "›"),
        tl.button("Zoom to selection (F)", { click: () => app.fit() }, "Zoom"),
        info.query ? null : tl.button("Search for all with this name or cause", { click: () => app.search.set(everyOne) }, "All"),
        tl.copyButton(title, "the name"),
        all,
        tl.button("Close (Esc)", { class: "tkl-button tkl-close", click: () => app.select(null) }, "✕"),
      ];
    }

    #link(one) {
      const text = tl.cut(tl.brief(one.name), 70);
      return tl.el("button", {
        type: "button", class: "tkl-link", title: tl.clean(one.name),
        click: () => this.app.select({ table: one.table, row: one.row }, { zoom: "seen" }),
      }, tl.el("span", { class: "tkl-link-name" }, text), tl.el("span", { class: "tkl-link-time" }, tl.time(one.dur_ns)));
    }

    #list(title, items, total) {
      if (!items.length) return [];
      const entries = items.slice(0, SHORT).map((one) => tl.el("li", {}, this.#link(one)));
      const list = tl.el("ul", { class: "tkl-relatives" }, ...entries);
      const more = items.length > SHORT ? tl.button(`Show ${items.length - SHORT} more`, {
        click: (event) => { list.append(...items.slice(SHORT).map((one) => tl.el("li", {}, this.#link(one)))); event.currentTarget.remove(); },
      }, `Show ${items.length - SHORT} more`) : null;
      const count = total && total > items.length ? ` (first ${items.length} of ${tl.count(total)})` : items.length > 1 ? ` (${tl.count(items.length)})` : "";
      return [tl.el("h3", { class: "tkl-subtitle" }, title + count), list, more].filter(Boolean);
    }

    #relatives(info) {
      const same = info.op && info.launch && info.op.row === info.launch.row;
      const idle = info.category !== null && info.category.startsWith("idle");
      return [
        ...this.#list(idle ? "Next launch" : "Launched by", info.launch ? [info.launch] : []),
        ...this.#list(idle ? "Op, or next call" : info.table === "device_intervals" ? "Op" : "Innermost enclosing op", info.op && !same ? [info.op] : []),
        ...this.#list("Next on its stream", info.next ? [info.next] : []),
        ...this.#list("Launched on devices", info.launched, info.launched_total),
        ...this.#list("Enclosed by, innermost first", info.parents),
      ];
    }

    #stack(info) {
      if (!info.stack || !info.stack.length) return [];
      const text = info.stack.map(tl.clean).join("\n");
      return [
        tl.el("div", { class: "tkl-detail-head" }, tl.el("h3", { class: "tkl-subtitle" }, `Stack (${info.stack.length}), innermost first`), tl.copyButton(info.stack.join("\n"), "the stack")),
        tl.el("pre", { class: "tkl-stack", tabindex: "0", "aria-label": "Stack" }, text),
      ];
    }
  };

  /** Title of an interval: its name, with the cause of idle time. */
  tl.titleOf = function (info) {
    const name = info.fields.name ? info.fields.name.value : info.table;
    return info.cause ? `${name}: ${info.cause.replaceAll("_", " ")}` : name;
  };
})(window.tracekit.timeline);
