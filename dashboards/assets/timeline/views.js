/* Views of a run under names, which the browser keeps: all that the address says, as range, lanes, search and selection. */
"use strict";
window.tracekit = window.tracekit || {};
window.tracekit.timeline = window.tracekit.timeline || {};
(function (tl) {
  const STORAGE_KEY = "tracekit-timeline-views";
  const MAX_VIEWS = 100;

  tl.Views = class {
    constructor(app, element) {
      Object.assign(this, { app, run: app.source.run });
      const label = "Name of the view";
      this.list = tl.el("ul", { class: "tkl-relatives" });
      this.field = tl.el("input", { type: "text", class: "tkl-input", maxlength: "60", "aria-label": label, placeholder: label, keydown: (event) => { if (event.key === "Enter") this.#save(); } });
      const save = tl.button("Save range, lanes, search and selection under this name (Enter)", { click: () => this.#save() }, "Save");
      element.append(tl.el("h2", { class: "tkl-subtitle" }, "Views"), this.list, tl.el("div", { class: "tkl-note" }, this.field, save));
      this.#show();
    }

    /** Views of all runs, the latest first. */
    #read() {
      try {
        const all = JSON.parse(window.localStorage.getItem(STORAGE_KEY));
        return Array.isArray(all) ? all.filter((view) => view && ["run", "name", "search"].every((key) => typeof view[key] === "string")) : [];
      } catch { // not allowed, or not what this page wrote
        return [];
      }
    }

    /** Replace the view of a name of this run; remove it without an address. */
    #replace(name, search) {
      const others = this.#read().filter((view) => view.run !== this.run || view.name !== name);
      try {
        window.localStorage.setItem(STORAGE_KEY, JSON.stringify([...(search ? [{ run: this.run, name, search }] : []), ...others].slice(0, MAX_VIEWS)));
      } catch {
        this.app.say("The browser keeps no views");
      }
      this.#show();
    }

    #save() {
      const name = this.field.value.trim();
      this.field.value = "";
      if (!name) { this.field.focus(); return; }
      this.app.address.flush();
      this.#replace(name, window.location.search);
      this.app.say(`View saved: ${tl.clean(name)}`);
    }

    /** Show a view; Back returns to the one before. */
    #go(search) {
      this.app.address.flush();
      window.history.pushState(window.history.state, "", window.location.pathname + search);
      window.dispatchEvent(new PopStateEvent("popstate"));
    }

    #show() {
      const views = this.#read().filter((view) => view.run === this.run);
      this.list.replaceChildren(...views.map(({ name, search }) => {
        const text = tl.clean(name);
        return tl.el("li", { class: "tkl-note" },
          tl.el("button", { type: "button", class: "tkl-link", title: text, click: () => this.#go(search) }, tl.el("span", { class: "tkl-link-name" }, text)),
          tl.button(`Delete ${text}`, { class: "tkl-mini", click: () => this.#replace(name, "") }, "✕"));
      }));
    }
  };
})(window.tracekit.timeline);
