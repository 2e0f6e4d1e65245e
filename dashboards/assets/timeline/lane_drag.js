/* Drag a lane or a group by its label to another place; Alt with an arrow and the buttons do the same. */
"use strict";
window.tracekit = window.tracekit || {};
window.tracekit.timeline = window.tracekit.timeline || {};
(function (tl) {
  const STILL = 5;
  const EDGE = 24;

  tl.LaneDrag = class {
    /** `changed("place", {key, before})` is called when a lane or group is dropped. */
    constructor(app, scroller, changed) {
      Object.assign(this, { app, scroller, changed, drag: null });
      this.mark = tl.el("div", { class: "tkl-drop", hidden: "", "aria-hidden": "true" });
      const on = (node, name, call, options) => node.addEventListener(name, call, { signal: app.ending, ...options });
      on(scroller, "pointerdown", (event) => this.#down(event));
      on(scroller, "pointermove", (event) => this.#move(event));
      on(scroller, "pointerup", () => this.#up());
      on(scroller, "pointercancel", () => this.#end());
      on(document, "keydown", (event) => { if (event.key === "Escape" && this.drag) { event.preventDefault(); this.#end(); } }, { capture: true });
    }

    /** Touch scrolls the lanes. */
    #down(event) {
      const node = event.target.closest("[data-move]");
      if (event.button !== 0 || event.pointerType === "touch" || !node || event.target.closest(".tkl-mini")) return;
      this.drag = { node, key: node.dataset.move, y: event.clientY, moved: false, before: undefined };
    }

    /** Rows among which the dragged one can move: those of its group, or the groups. */
    get #others() {
      const { lanes } = this.app;
      const { key } = this.drag;
      if (key[0] === "g") return lanes.rows.filter((row) => row.kind === "group").map((row) => ({ key: `g${row.group.key}`, y: row.y, h: this.#heightOf(row.group) }));
      const own = lanes.groups.find((group) => group.lines.some((line) => line.key === Number(key)));
      return lanes.rows.filter((row) => row.kind === "line" && own.lines.includes(row.line)).map((row) => ({ key: String(row.line.key), y: row.y, h: row.h }));
    }

    #heightOf(group) {
      const { rows, height } = this.app.lanes;
      const at = rows.findIndex((row) => row.group === group);
      const next = rows.slice(at + 1).find((row) => row.kind === "group");
      return (next ? next.y : height) - rows[at].y;
    }

    #move(event) {
      const { drag, scroller } = this;
      if (!drag) return;
      if (!drag.moved && Math.abs(event.clientY - drag.y) < STILL) return;
      if (!drag.moved) {
        drag.moved = true;
        scroller.setPointerCapture(event.pointerId);
        drag.node.classList.add("tkl-dragged");
        scroller.firstChild.append(this.mark);
      }
      const box = scroller.getBoundingClientRect();
      if (event.clientY < box.top + EDGE) scroller.scrollTop -= EDGE;
      if (event.clientY > box.bottom - EDGE) scroller.scrollTop += EDGE;
      const y = event.clientY - box.top + scroller.scrollTop;
      const others = this.#others;
      const next = others.find((one) => one.y + one.h / 2 > y);
      const last = others[others.length - 1];
      drag.before = next ? next.key : null;
      this.mark.hidden = false;
      this.mark.style.top = `${(next ? next.y : last.y + last.h) - 2}px`;
    }

    #up() {
      const { drag } = this;
      this.#end();
      if (!drag || !drag.moved) return;
      window.addEventListener("click", (event) => { event.stopPropagation(); event.preventDefault(); }, { capture: true, once: true });
      window.setTimeout(() => window.dispatchEvent(new Event("click")));
      if (drag.before !== undefined && drag.before !== drag.key) this.changed("place", drag);
    }

    #end() {
      if (this.drag) this.drag.node.classList.remove("tkl-dragged");
      this.drag = null;
      this.mark.hidden = true;
    }
  };
})(window.tracekit.timeline);
