/* Canvases, labels and scroll bar; repaints on change. */
"use strict";
window.tracekit = window.tracekit || {};
window.tracekit.timeline = window.tracekit.timeline || {};
(function (tl) {
  const NARROW = 1000;

  tl.Stage = class {
    constructor(app) {
      this.app = app;
      this.base = this.overlayDirty = true;
      this.frames = 0;
      this.channel = new MessageChannel();
      this.channel.port1.onmessage = ({ data }) => this.#mark(data);
    }

    build(label) {
      const canvas = (name, more) => tl.el("canvas", { class: `tkl-canvas ${name}`, "aria-hidden": "true", ...more });
      const parts = {
        corner: tl.el("div", { class: "tkl-corner" }), head: canvas("tkl-head"), pins: tl.el("div", { class: "tkl-pins" }),
        scroller: tl.el("div", { class: "tkl-labels", tabindex: "-1" }), pinned: canvas("tkl-pinned"), body: canvas("tkl-body"),
        overlay: canvas("tkl-overlay", { "aria-hidden": null, tabindex: "0", role: "application", "aria-label": label, id: "timeline-canvas" }),
        rail: tl.el("div", { class: "tkl-rail", "aria-hidden": "true" }, tl.el("div", {})), note: tl.el("div", { class: "tkl-error", role: "alert", hidden: "" }),
      };
      parts.left = tl.el("div", { class: "tkl-left" }, parts.pins, parts.scroller);
      parts.right = tl.el("div", { class: "tkl-right" }, parts.pinned, parts.body, parts.overlay, parts.note);
      parts.stage = tl.el("div", { class: "tkl-stage" }, parts.corner, parts.head, parts.left, parts.right, parts.rail);
      this.parts = parts;
      this.#scrolling(parts);
      return parts;
    }

    /** Synchronize scrolling of labels, scroll bar and canvas. */
    #scrolling({ scroller, rail }) {
      const signal = this.app.ending;
      scroller.addEventListener("scroll", () => { rail.scrollTop = scroller.scrollTop; this.app.scrolled(); }, { signal, passive: true });
      rail.addEventListener("scroll", () => { if (Math.abs(rail.scrollTop - scroller.scrollTop) > 1) scroller.scrollTop = rail.scrollTop; }, { signal, passive: true });
    }

    get top() { return this.parts.scroller.scrollTop; }
    get height() { return this.parts.right.clientHeight; }

    /** Give the style sheets the height of all lanes, and what is above the timeline. */
    fitHeight() {
      const { element, lanes } = this.app;
      const top = element.getBoundingClientRect().top + window.scrollY;
      const all = tl.HEAD + lanes.pinsHeight + lanes.height + 8;
      element.style.setProperty("--tkl-above", `${Math.round(top)}px`);
      element.style.setProperty("--tkl-lanes", `${Math.round(all)}px`);
      this.leavesRoom ??= all < (window.innerHeight - top) / 2 || window.innerWidth <= NARROW;
    }

    place() {
      const { lanes } = this.app;
      this.parts.left.style.setProperty("--tkl-pinned", `${lanes.pinsHeight}px`);
      this.parts.rail.firstChild.style.height = `${lanes.height}px`;
      this.parts.rail.style.marginTop = `${lanes.pinsHeight}px`;
    }

    /** Repaint on the next frame; with `base` false, only the overlay. */
    redraw(base = true) {
      this.base = this.base || base;
      this.overlayDirty = true;
      if (this.frameRequested) return;
      this.frameRequested = true;
      window.requestAnimationFrame(() => { this.frameRequested = false; if (this.app.alive && this.app.scale) this.#frame(); });
    }

    #frame() {
      const { app, parts } = this;
      if (this.base) this.#lanes();
      if (this.overlayDirty) tl.paintOverlay(parts.overlay, app, this.height);
      const painted = this.base;
      if (painted) app.rehover();
      this.base = this.overlayDirty = false;
      if (painted) this.channel.port2.postMessage({ frame: (this.frames += 1), from: app.scale.from, to: app.scale.to, settled: app.data.settled });
    }

    #lanes() {
      const { app, parts } = this;
      const { lanes } = app;
      const style = app.paintedWith();
      const room = Math.max(0, this.height - lanes.pinsHeight);
      const ruler = app.heading.paint(style);
      if (app.notes) app.notes.paint(ruler, style, tl.HEAD);
      const pinned = tl.contextOf(parts.pinned, app.scale.width, Math.max(1, lanes.pinsHeight));
      if (lanes.pinsHeight) {
        tl.paintBackground(pinned, style, lanes.pinsHeight);
        tl.paintRows(pinned, lanes.pins, style);
        tl.paintLanes(pinned, lanes.pins, style);
      }
      parts.pinned.hidden = !lanes.pinsHeight;
      const pen = tl.contextOf(parts.body, app.scale.width, Math.max(1, room));
      tl.paintBackground(pen, style, room);
      pen.translate(0, -this.top);
      const seen = lanes.rows.filter((row) => row.y + row.h > this.top && row.y < this.top + room);
      tl.paintRows(pen, seen, style);
      tl.paintLanes(pen, seen, style);
      const corner = tl.anchorText(app.scale);
      if (parts.corner.textContent !== corner) parts.corner.textContent = corner;
    }

    /** Mark the painted frame, for benchmarks and tests. */
    #mark(detail) {
      performance.clearMarks("tracekit:painted");
      performance.mark("tracekit:painted", { detail });
      this.parts.overlay.dataset.frame = String(detail.frame);
      this.parts.overlay.dataset.settled = String(detail.settled);
      this.parts.overlay.dataset.range = `${Math.floor(detail.from)}-${Math.ceil(detail.to)}`;
    }

    trouble(message) {
      this.parts.note.hidden = !message;
      this.parts.note.textContent = message || "";
    }

    /** Render the timeline with its labels to a canvas. */
    picture() {
      const { app, parts } = this;
      const ratio = Math.min(3, window.devicePixelRatio || 1);
      const left = parts.left.clientWidth;
      const sheet = document.createElement("canvas");
      const pen = tl.contextOf(sheet, left + app.scale.width, tl.HEAD + this.height);
      pen.fillStyle = app.colors.back;
      pen.fillRect(0, 0, sheet.width, sheet.height);
      const put = (canvas, y) => pen.drawImage(canvas, left, y, canvas.width / ratio, canvas.height / ratio);
      put(parts.body, tl.HEAD + app.lanes.pinsHeight);
      if (app.lanes.pinsHeight) put(parts.pinned, tl.HEAD);
      put(parts.overlay, tl.HEAD);
      put(parts.head, 0);
      this.#titles(pen, left);
      return sheet;
    }

    #titles(pen, left) {
      const { app } = this;
      pen.font = app.colors.font;
      pen.textBaseline = "middle";
      pen.fillStyle = app.colors.ink;
      pen.fillText(tl.fitted(pen, tl.anchorText(app.scale), left - 12), 6, tl.HEAD - 11);
      for (const row of [...app.lanes.pins, ...app.lanes.rows]) {
        if (row.kind === "lane") continue;
        const y = app.yOf(row);
        if (y < (row.pinned ? 0 : app.lanes.pinsHeight) || y > this.height - 10) continue;
        const text = row.kind === "group" ? row.group.title : row.line.title;
        pen.fillText(tl.fitted(pen, tl.clean(text), left - 24), row.kind === "group" ? 6 : 16, tl.HEAD + y + 11);
      }
    }
  };

  /** Visible duration, and the origin of the ruler. */
  tl.anchorText = function (scale) {
    const { anchor } = tl.ticks(scale, tl.ROOM);
    return anchor ? `${tl.time(scale.span)} · + ${tl.exactly(anchor)}` : tl.time(scale.span);
  };
})(window.tracekit.timeline);
