/* Labels left of the lanes: group headings and lane titles, with buttons to fold, hide and pin. */
"use strict";
window.tracekit = window.tracekit || {};
window.tracekit.timeline = window.tracekit.timeline || {};
(function (tl) {
  const icon = (text) => tl.el("span", { "aria-hidden": "true" }, text);

  /** Title of a group, of which a phone leaves out the rank where all lanes are of one. */
  function ranked(lanes, title) {
    const rank = lanes.ranks > 1 ? null : /^rank \d+ · /.exec(title);
    return rank ? [tl.el("span", { class: "tkl-rank" }, rank[0]), title.slice(rank[0].length)] : [title];
  }

  tl.Labels = class {
    /** `changed(what, key)` is called when the user folds, hides, pins or moves. */
    constructor(pins, scroller, changed) {
      Object.assign(this, { pins, scroller, changed });
      this.inner = tl.el("div", { class: "tkl-labels-inner" });
      scroller.replaceChildren(this.inner);
      for (const part of [pins, scroller]) part.addEventListener("keydown", (event) => this.#key(event));
    }

    /** Alt with an arrow moves the lane or group of the focused button. */
    #key(event) {
      const row = event.target.closest("[data-move]");
      const what = { ArrowUp: "up", ArrowDown: "down" }[event.key];
      if (!row || !what || !event.altKey) return;
      event.preventDefault();
      this.changed(what, row.dataset.move[0] === "g" ? row.dataset.move : Number(row.dataset.move));
    }

    #moves(key, title) {
      return [["up", "↑"], ["down", "↓"]].map(([what, sign]) => tl.button(`Move ${title} ${what} (Alt + ${sign})`, { class: "tkl-mini", "data-tkl": `${what}${key}`, click: () => this.changed(what, key) }, icon(sign)));
    }

    show(lanes) {
      const focused = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.tkl : null;
      this.inner.style.height = `${lanes.height}px`;
      this.inner.replaceChildren(...this.#made(lanes, lanes.rows));
      this.pins.style.height = `${lanes.pinsHeight}px`;
      this.pins.replaceChildren(...this.#made(lanes, lanes.pins));
      if (focused) {
        const again = this.scroller.parentElement.querySelector(`[data-tkl="${CSS.escape(focused)}"]`);
        if (again) again.focus({ preventScroll: true });
      }
    }

    #made(lanes, rows) {
      const made = [];
      for (const row of rows) {
        if (row.kind === "group") made.push(this.#group(lanes, row));
        if (row.kind === "line") made.push(this.#line(lanes, row));
      }
      return made;
    }

    #place(node, row) {
      node.style.top = `${row.y}px`;
      node.style.height = `${row.h}px`;
      return node;
    }

    #group(lanes, { group, folded, ...row }) {
      const hidden = group.lines.filter((line) => lanes.hidden.has(line.key)).length;
      const button = tl.el("button", {
        type: "button", class: "tkl-fold", "aria-expanded": String(!folded), "data-tkl": `g${group.key}`,
        title: folded ? `Show the lanes of ${group.title}` : `Fold ${group.title}`,
        click: () => this.changed("folded", group.key),
      }, icon(folded ? "▸" : "▾"), tl.el("span", { class: "tkl-title" }, ...ranked(lanes, tl.clean(group.title))));
      const back = hidden ? tl.button(`Show ${hidden} hidden of ${group.title}`, {
        class: "tkl-mini tkl-back", click: () => this.changed("unhide", group.key),
      }, `+${hidden}`) : null;
      const own = group.query ? [["edit", "Edit the query of", "✎"], ["remove", "Remove", "✕"]] : [];
      const tools = tl.el("span", { class: "tkl-tools" }, ...this.#moves(`g${group.key}`, group.title),
        ...own.map(([what, text, sign]) => tl.button(`${text} ${group.title}`, { class: "tkl-mini", click: () => this.changed(what, group.query) }, icon(sign))));
      return this.#place(tl.el("div", { class: "tkl-group", "data-move": `g${group.key}` }, button, back, tools), row);
    }

    #line(lanes, { line, pinned, ...row }) {
      const deep = line.lanes.length > 1;
      const folded = lanes.folded.has(`l${line.key}`);
      const text = tl.clean(line.title);
      const ranked = lanes.ranks > 1 && (pinned || lanes.grouping !== "rank");
      const full = pinned || lanes.grouping ? `${ranked ? line.group : line.group.replace(/^rank \d+( · )?/, "")} · ${text}`.replace(/^ · /, "") : text;
      const title = tl.el("span", { class: "tkl-title", title: `${line.group} · ${text}` }, full);
      const fold = deep ? tl.button(folded ? `Show all ${line.lanes.length} levels of ${text}` : `Fold ${text}`, {
        class: "tkl-mini tkl-level", "aria-expanded": String(!folded), "data-tkl": `l${line.key}`, click: () => this.changed("folded", `l${line.key}`),
      }, icon(folded ? "▸" : "▾")) : tl.el("span", { class: "tkl-level" });
      const cut = deep && !folded && lanes.short.has(line.key);
      const more = cut ? tl.button(`Show all ${line.lanes.length} levels of ${text}`, { class: "tkl-mini tkl-more", click: () => this.changed("short", line.key) }, `${line.lanes.length} levels`) : null;
      const tools = tl.el("span", { class: "tkl-tools" }, ...(pinned ? [] : this.#moves(line.key, full)),
        tl.button(pinned ? `Unpin ${full}` : `Pin ${full} to the top`, { class: "tkl-mini", "aria-pressed": String(pinned), "data-tkl": `p${line.key}`, click: () => this.changed("pinned", line.key) }, icon(pinned ? "⊼" : "⊤")),
        tl.button(`Hide ${full}`, { class: "tkl-mini", "data-tkl": `h${line.key}`, click: () => this.changed("hidden", line.key) }, icon("✕")),
      );
      return this.#place(tl.el("div", { class: `tkl-line tkl-line-${line.kind}${deep && !folded ? " tkl-deep" : ""}`, "data-move": line.key }, fold, title, more, tools), row);
    }
  };

  /** Toolbar controls of the lanes: grouping, collapse all, and the usual arrangement. */
  tl.Arranging = class {
    constructor(element, lanes, changed) {
      const choices = [["", "Lanes by device"], ...(lanes.ranks > 1 ? [["rank", "Lanes by rank"]] : []), ["stream", "Lanes by stream"], ...(lanes.processGroups ? [["process_group", "By process group"]] : [])];
      this.grouping = tl.el("select", { class: "tkl-input tkl-mode", "aria-label": "Group the lanes", change: () => changed("group", this.grouping.value) },
        ...choices.map(([value, text]) => tl.el("option", { value }, text)));
      this.all = tl.button("Collapse all groups to one line each (C)", { click: () => changed("collapse") }, "Collapse");
      this.reset = tl.button("Show all lanes in their usual order and groups", { click: () => changed("reset"), hidden: "" }, "Reset");
      element.append(this.grouping, this.all, this.reset);
    }

    show(lanes) {
      this.grouping.value = lanes.grouping;
      this.all.textContent = lanes.collapsed ? "Expand" : "Collapse";
      this.all.setAttribute("aria-expanded", String(!lanes.collapsed));
      this.reset.hidden = !lanes.changed;
    }
  };

  /** Legend of the visible categories; each is a button that hides its bars. */
  tl.Legend = class {
    constructor(element, changed) {
      Object.assign(this, { element, changed, shown: "" });
    }

    show(colors, seen, off) {
      const ids = [...new Set([...seen, ...off])].sort((a, b) => a - b);
      const now = `${ids} ${[...off]} ${colors.back}`;
      if (now === this.shown) return;
      this.shown = now;
      const focused = document.activeElement && document.activeElement.dataset.category;
      this.element.replaceChildren(...ids.map((id) => tl.el("button", {
        type: "button", class: "tkl-key", "data-category": id, "aria-pressed": String(!off.has(id)),
        title: off.has(id) ? "Show category" : "Hide category", click: () => this.changed(id),
      }, colors.swatch(id), tl.el("span", {}, (colors.names[id] || "").replaceAll("_", " ")))));
      if (focused) (this.element.querySelector(`[data-category="${focused}"]`) || document.body).focus();
    }
  };
})(window.tracekit.timeline);
