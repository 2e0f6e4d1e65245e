/* Keep the address in sync with range, selection, lanes and categories, without a server request. */
"use strict";
window.tracekit = window.tracekit || {};
window.tracekit.timeline = window.tracekit.timeline || {};
(function (tl) {
  const ROW = /^([a-z_]{1,40}):(\d{1,12})$/;
  const WHOLE = /^-?\d{1,18}$/;
  const SLOW = 250;

  const number = (text) => (WHOLE.test(text || "") ? Number(text) : null);
  const keys = (text) => (text || "").split(".").filter((part) => /^l?\d{1,9}$/.test(part)).map((part) => (part[0] === "l" ? part : Number(part)));

  /** Parse the page's address. */
  tl.readAddress = function () {
    const words = new URLSearchParams(window.location.search);
    const row = ROW.exec(words.get("row") || "");
    return {
      from: number(words.get("from")), to: number(words.get("to")),
      row: row ? { table: row[1], row: Number(row[2]) } : null,
      hidden: keys(words.get("hide")), pinned: keys(words.get("pin")), folded: keys(words.get("fold")), off: keys(words.get("off")),
    };
  };

  tl.Address = class {
    constructor(app) {
      this.app = app;
      this.path = window.location.pathname;
      this.notifiedSearch = window.location.search;
      this.later = tl.later(SLOW, () => this.#write(false));
      window.addEventListener("popstate", () => {
        this.later.cancel();
        if (window.location.pathname === this.path && this.app.alive) this.app.applyAddress(tl.readAddress(), { back: true });
      }, { signal: app.ending });
      app.ending.addEventListener("abort", () => this.later.cancel());
      const header = document.querySelector(".tk-header");
      for (const name of header ? ["pointerenter", "focusin"] : []) header.addEventListener(name, () => this.notifyDash(), { signal: app.ending });
    }

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
      set("hide", [...app.lanes.hidden].join("."));
      set("pin", [...app.lanes.pinned].join("."));
      set("fold", [...app.lanes.folded].join("."));
      set("off", [...app.off].join("."));
      return words.toString().replaceAll("%3A", ":");
    }

    #write() {
      if (window.location.pathname !== this.path || !this.app.alive) return;
      const words = this.#words();
      const search = words ? `?${words}` : "";
      if (search === window.location.search) { this.push = false; return; }
      window.history[this.push ? "pushState" : "replaceState"](window.history.state, "", `${this.path}${search}`);
      this.push = false;
    }
  };
})(window.tracekit.timeline);
