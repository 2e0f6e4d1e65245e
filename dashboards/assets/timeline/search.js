/* Name search: a combobox with the matches, largest total time first. */
"use strict";
window.tracekit = window.tracekit || {};
window.tracekit.timeline = window.tracekit.timeline || {};
(function (tl) {
  const PAUSE = 160;
  const LIMIT = 30;

  tl.Search = class {
    constructor(app, element) {
      Object.assign(this, { app, element, found: [], active: -1 });
      this.field = tl.el("input", {
        type: "search", class: "tkl-input", id: "timeline-search", placeholder: "Search names  /", autocomplete: "off", spellcheck: "false", role: "combobox",
        "aria-label": "Search for a name", "aria-expanded": "false", "aria-controls": "timeline-found", "aria-autocomplete": "list",
        input: () => this.ask(), keydown: (event) => this.#key(event), focus: () => { if (this.found.length) this.#open(true); },
        blur: () => window.setTimeout(() => this.#open(false), 150),
      });
      this.list = tl.el("ul", { class: "tkl-found", id: "timeline-found", role: "listbox", "aria-label": "Matching names", hidden: "" });
      this.ask = tl.later(PAUSE, () => this.#ask());
      element.append(tl.el("div", { class: "tkl-search" }, this.field, this.list));
    }

    focus() { this.field.focus(); this.field.select(); }

    #open(yes) {
      this.list.hidden = !yes;
      this.field.setAttribute("aria-expanded", String(yes));
    }

    async #ask() {
      const q = this.field.value.trim();
      if (this.control) this.control.abort();
      if (!q) { this.found = []; this.#open(false); this.app.setHighlight(null); return; }
      this.control = new AbortController();
      try {
        const { total, names } = await this.app.wire.json("search", { q, limit: LIMIT }, this.control.signal);
        this.#show(q, total, names);
      } catch (error) {
        if (error.name !== "AbortError") this.#show(q, 0, []);
      }
    }

    #show(q, total, names) {
      this.found = names;
      this.active = names.length ? 0 : -1;
      const entries = names.map((one, place) => tl.el("li", {
        role: "option", id: `timeline-found-${place}`, title: tl.clean(one.name), "aria-selected": String(place === 0),
        mousedown: (event) => { event.preventDefault(); this.#choose(place); },
      }, tl.el("span", { class: "tkl-link-name" }, tl.cut(tl.brief(one.name), 80)),
      tl.el("span", { class: "tkl-link-time" }, `${tl.count(one.count)} × · ${tl.time(one.sum_ns)}`)));
      const rest = total > names.length ? `${tl.count(total - names.length)} more matches; refine the search` : names.length ? null : `No name contains “${q}”.`;
      this.list.replaceChildren(...entries, ...(rest ? [tl.el("li", { class: "tkl-hint", role: "presentation" }, rest)] : []));
      this.#open(true);
      this.#point();
      this.app.say(`${tl.count(total)} ${total === 1 ? "name contains" : "names contain"} ${q}`);
      this.app.setHighlight(q, true);
    }

    #point() {
      [...this.list.querySelectorAll("[role=option]")].forEach((node, place) => {
        node.setAttribute("aria-selected", String(place === this.active));
        if (place === this.active) node.scrollIntoView({ block: "nearest" });
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
        this.active = (this.active + (key === "ArrowDown" ? 1 : -1) + this.found.length) % this.found.length;
        this.#point();
      } else if (key === "Enter" && this.active >= 0) this.#choose(this.active);
      else if (key === "Escape") {
        event.preventDefault();
        this.field.value = "";
        this.ask.cancel();
        this.found = [];
        this.#open(false);
        this.app.setHighlight(null);
        this.app.parts.overlay.focus();
      }
    }

    #choose(place) {
      const one = this.found[place];
      this.#open(false);
      this.app.setHighlight(one.name);
      this.app.parts.overlay.focus({ preventScroll: true });
      this.app.select({ table: one.first.table, row: one.first.row }, { zoom: "near" });
    }
  };
})(window.tracekit.timeline);
