/* Keyboard input; `?` lists the shortcuts of all pages, these included. */
"use strict";
window.tracekit = window.tracekit || {};
window.tracekit.timeline = window.tracekit.timeline || {};
(function (tl) {
  const HELD = { w: [-1, 0], "+": [-1, 0], "=": [-1, 0], s: [1, 0], "-": [1, 0], a: [0, -1], ArrowLeft: [0, -1], d: [0, 1], ArrowRight: [0, 1] };
  const SCROLL = { ArrowUp: -48, ArrowDown: 48, PageUp: -320, PageDown: 320 };

  /** Whether the focused element handles the key. */
  function typing(event) {
    const node = event.target;
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return true;
    if (node.closest("input, textarea, select, [contenteditable], [role=combobox], [role=listbox], [role=menu], dialog[open]")) return true;
    return node !== document.body && !node.closest("#page");
  }

  tl.Keys = class {
    constructor(app) {
      this.app = app;
      this.held = new Map();
      const node = app.isPartOfPage ? app.parts.overlay : document;
      const on = (name, call) => node.addEventListener(name, call, { signal: app.ending });
      on("keydown", (event) => this.#down(event));
      on("keyup", (event) => this.held.delete(lower(event.key)));
      for (const one of [window, node]) one.addEventListener("blur", () => this.held.clear(), { signal: app.ending });
      this.once = app.keys;
    }

    #down(event) {
      if (typing(event)) return;
      this.app.tooltip.show(null);
      const key = lower(event.key);
      const inside = event.target.closest(".tkl-stage") || event.target === document.body;
      if (this.once[key]) { event.preventDefault(); this.once[key](event); return; }
      if (HELD[key] && (key.length === 1 || inside)) { event.preventDefault(); this.#hold(key, event.shiftKey); return; }
      if (SCROLL[key] && event.target === this.app.parts.overlay && !this.app.isPartOfPage) { event.preventDefault(); this.app.parts.scroller.scrollTop += SCROLL[key]; }
      if (key === "Enter" && event.target === this.app.parts.overlay) this.app.selectMiddle();
    }

    /** Move immediately on key press, then on every frame while the key is held. */
    #hold(key, fast) {
      if (this.held.has(key)) return;
      this.held.set(key, performance.now());
      this.#apply(key, fast ? 180 : 60);
      if (!this.running) this.#run();
    }

    #run() {
      this.running = true;
      let before = performance.now();
      const frame = (now) => {
        const passed = Math.min(50, now - before);
        before = now;
        for (const [key, since] of this.held) if (now - since > 180) this.#apply(key, passed);
        this.running = this.held.size > 0 && !this.app.ending.aborted;
        if (this.running) window.requestAnimationFrame(frame);
      };
      window.requestAnimationFrame(frame);
    }

    #apply(key, passed) {
      const { app } = this;
      const [zoom, pan] = HELD[key];
      const middle = app.pointer ? app.pointer.x : app.scale.width / 2;
      if (zoom) app.move(() => app.scale.zoom(Math.exp(zoom * passed * 0.004), middle));
      else app.move(() => app.scale.pan(pan * passed * 0.0012 * app.scale.width));
    }
  };

  const lower = (key) => (key.length === 1 && key >= "A" && key <= "Z" ? key.toLowerCase() : key);
})(window.tracekit.timeline);
