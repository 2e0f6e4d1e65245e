/* Pointer input: wheel, drag, brush, click, double-click, and the overview. */
"use strict";
window.tracekit = window.tracekit || {};
window.tracekit.timeline = window.tracekit.timeline || {};
(function (tl) {
  const STILL = 4;
  const LINE = 32;
  const ALL_LANES = 14;

  /** Convert a wheel delta to pixels. */
  const pixels = (delta, mode) => delta * (mode === 1 ? LINE : mode === 2 ? 400 : 1);

  tl.Pointer = class {
    constructor(app) {
      this.app = app;
      this.drag = null;
      const on = (node, name, call, options) => node.addEventListener(name, call, { signal: app.ending, ...options });
      const { overlay, head, scroller } = app.parts;
      on(overlay, "wheel", (event) => this.#wheel(event), { passive: false });
      on(head, "wheel", (event) => this.#wheel(event), { passive: false });
      on(app.parts.pins, "wheel", (event) => { scroller.scrollTop += pixels(event.deltaY, event.deltaMode); });
      on(overlay, "pointerdown", (event) => this.#down(event));
      on(overlay, "pointermove", (event) => this.#move(event));
      on(overlay, "pointerup", (event) => this.#up(event));
      on(overlay, "pointercancel", () => { this.drag = null; });
      on(overlay, "pointerleave", () => app.point(null));
      on(overlay, "dblclick", (event) => this.#double(event));
      on(head, "pointerdown", (event) => this.#headDown(event));
      on(head, "pointermove", (event) => this.#headMove(event));
      on(head, "pointerup", (event) => this.#headUp(event));
      on(head, "dblclick", () => app.fit());
    }

    #wheel(event) {
      const { app } = this;
      const [dx, dy] = [pixels(event.deltaX, event.deltaMode), pixels(event.deltaY, event.deltaMode)];
      if (app.isPartOfPage && !event.shiftKey && !event.ctrlKey && !event.metaKey && Math.abs(dx) <= Math.abs(dy)) return; // scrolls the page
      event.preventDefault();
      if (event.altKey) app.parts.scroller.scrollTop += dy;
      else if (event.shiftKey) app.move(() => app.scale.pan(dx || dy));
      else if (Math.abs(dx) > Math.abs(dy)) app.move(() => app.scale.pan(dx));
      else {
        const speed = event.ctrlKey && Math.abs(dy) < 50 ? 0.01 : 0.002;
        app.move(() => app.scale.zoom(Math.exp(Math.max(-1, Math.min(1, dy * speed))), event.offsetX));
      }
    }

    #down(event) {
      if (event.button !== 0) return;
      const { app } = this;
      app.parts.overlay.setPointerCapture(event.pointerId);
      this.drag = { x: event.offsetX, y: event.offsetY, last: event.offsetX, lastY: event.offsetY, brush: event.shiftKey, moved: false };
    }

    #move(event) {
      const { app, drag } = this;
      const [x, y] = [event.offsetX, event.offsetY];
      if (!drag) { app.point({ x, y }); return; }
      if (Math.hypot(x - drag.x, y - drag.y) > STILL) drag.moved = true;
      if (!drag.moved) return;
      app.point(null);
      if (drag.brush) this.#brush(drag, x, y, true);
      else {
        app.parts.scroller.scrollTop -= y - drag.lastY;
        app.move(() => app.scale.pan(drag.last - x));
        app.parts.overlay.classList.add("tkl-grabbing");
      }
      [drag.last, drag.lastY] = [x, y];
    }

    #brush(drag, x, y, active) {
      const { app } = this;
      const [left, right] = [Math.max(0, Math.min(x, drag.x)), Math.min(app.scale.width, Math.max(x, drag.x))];
      const [top, bottom] = [Math.min(y, drag.y), Math.max(y, drag.y)];
      const inside = bottom - top > ALL_LANES ? app.lanesBetween(top, bottom) : [];
      const lanes = inside.length ? inside : null;
      app.setBrush({ from: Math.round(app.scale.time(left)), to: Math.max(Math.round(app.scale.time(right)), Math.round(app.scale.time(left)) + 1), lanes, active });
    }

    #up(event) {
      const { app, drag } = this;
      this.drag = null;
      app.parts.overlay.classList.remove("tkl-grabbing");
      if (!drag) return;
      if (drag.moved && drag.brush) this.#brush(drag, event.offsetX, event.offsetY, false);
      else if (!drag.moved) this.#click(event);
    }

    #click(event) {
      const { app } = this;
      const found = tl.hit(app, event.offsetX, event.offsetY);
      if (!found) { app.select(null); return; }
      app.select(found, { zoom: found.lane.kind === "steps" ? "exactly" : null });
    }

    #double(event) {
      this.app.zoomTo(tl.hit(this.app, event.offsetX, event.offsetY), event.offsetX);
    }

    #headDown(event) {
      const { app } = this;
      app.parts.head.setPointerCapture(event.pointerId);
      const x = event.offsetX;
      const ruler = event.offsetY > tl.OVERVIEW;
      const part = ruler ? "ruler" : app.heading.part(app.scale, x);
      this.grip = { part, x, from: app.scale.from, to: app.scale.to, moved: false };
      if (part === "outside") {
        const at = this.#overviewTime(x);
        app.jump(at - app.scale.span / 2, at + app.scale.span / 2);
        this.grip = { ...this.grip, part: "window", from: app.scale.from, to: app.scale.to };
      }
    }

    #overviewTime(x) {
      const { min, max, width } = this.app.scale;
      return min + (x / width) * (max - min);
    }

    #headMove(event) {
      const { app, grip } = this;
      const x = event.offsetX;
      if (!grip) {
        const part = event.offsetY > tl.OVERVIEW ? "ruler" : app.heading.part(app.scale, x);
        app.parts.head.style.cursor = { left: "ew-resize", right: "ew-resize", window: "grab", ruler: "crosshair" }[part] || "pointer";
        return;
      }
      if (Math.abs(x - grip.x) > STILL) grip.moved = true;
      if (!grip.moved) return;
      const by = this.#overviewTime(x) - this.#overviewTime(grip.x);
      if (grip.part === "left") app.move(() => app.scale.setRange(Math.min(grip.from + by, grip.to - 20), grip.to));
      else if (grip.part === "right") app.move(() => app.scale.setRange(grip.from, Math.max(grip.to + by, grip.from + 20)));
      else if (grip.part === "window") app.move(() => app.scale.setRange(grip.from + by, grip.to + by));
      else this.#brush({ x: grip.x, y: 0 }, x, 0, true);
    }

    #headUp(event) {
      const { grip } = this;
      this.grip = null;
      if (grip && grip.part === "ruler" && grip.moved) this.#brush({ x: grip.x, y: 0 }, event.offsetX, 0, false);
    }
  };
})(window.tracekit.timeline);
