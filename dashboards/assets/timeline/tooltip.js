/* Tooltip of the hovered interval: name, duration, start, lane. */
"use strict";
window.tracekit = window.tracekit || {};
window.tracekit.timeline = window.tracekit.timeline || {};
(function (tl) {
  const DWELL = 90;
  const WIDE = 90;

  tl.Tooltip = class {
    constructor(app) {
      this.app = app;
      this.node = tl.el("div", { class: "tkl-tooltip", hidden: "", "aria-hidden": "true" });
      this.longest = tl.later(DWELL, (found) => this.#ask(found));
    }

    show(found, x, y) {
      this.found = found;
      this.longest.cancel();
      this.node.hidden = !found;
      if (!found) return;
      if (found.level) this.#level(found);
      else this.#fill(found);
      if (!found.exact && !found.level) this.longest(found);
      this.#place(x, y);
      this.at = [x, y];
    }

    /** Memory or a counter at the pointer: one value, or minimum and maximum of the pixel. */
    #level({ lane, low, high, from, to }) {
      const { kind, unit, total } = lane;
      const text = low === high ? tl.amount(low, unit) : `${tl.amount(low, unit)} to ${tl.amount(high, unit)}`;
      const name = kind === "counter" ? tl.clean(lane.title.split(" · ")[0]) : total ? "Allocated" : "Allocated since the start of the capture";
      this.node.replaceChildren(
        tl.el("div", { class: "tkl-tip-name" }, name),
        tl.el("div", { class: "tkl-tip-time" }, text),
        tl.el("div", {}, `at ${tl.exactly(from)}, within ${tl.time(to - from)}`),
        tl.el("div", { class: "tkl-tip-note" }, `capture: ${tl.amount(lane.low, unit)} to ${tl.amount(lane.high, unit)}${lane.limit ? ` · limit ${tl.amount(lane.limit, unit)}` : ""} · ${lane.group}`),
      );
    }

    #fill(found, longest) {
      const { app } = this;
      const style = app.colors.of(found.category);
      const idle = found.lane.kind === "idle";
      const name = idle ? style.name.replaceAll("_", " ") : found.name;
      const lines = [tl.el("div", { class: "tkl-tip-name" }, app.colors.swatch(found.category), tl.cut(tl.brief(name), WIDE))];
      if (found.exact) {
        lines.push(tl.el("div", { class: "tkl-tip-time" }, tl.time(found.dur)), tl.el("div", {}, `from ${tl.exactly(found.start)}`));
      } else {
        const many = `${tl.count(found.count)} ${found.count === 1 ? "interval" : "intervals"}, ${tl.share(found.busy)} busy`;
        lines.unshift(tl.el("div", { class: "tkl-tip-note" }, "Longest in this pixel"));
        lines.push(tl.el("div", { class: "tkl-tip-time" }, longest ? tl.time(longest.dur) : " "), tl.el("div", {}, longest ? `from ${tl.exactly(longest.start)}` : " "), tl.el("div", {}, many));
      }
      lines.push(tl.el("div", { class: "tkl-tip-note" }, `${style.name.replaceAll("_", " ")} · ${found.lane.group} · ${tl.clean(found.lane.title)}`));
      this.node.replaceChildren(...lines);
    }

    async #ask(found) {
      const info = await this.app.row(found.table, found.row, found.lane).catch(() => null);
      if (!info || this.found !== found) return;
      this.#fill(found, { start: info.start_ns, dur: info.fields.dur_ns.value });
      this.#place(...this.at);
    }

    /** Position below and right of the pointer, or where there is room. */
    #place(x, y) {
      const { width, height } = this.node.getBoundingClientRect();
      const box = this.app.parts.overlay.getBoundingClientRect();
      const left = box.left + x + 16 + width > window.innerWidth - 8 ? box.left + x - width - 12 : box.left + x + 16;
      const top = box.top + y + 18 + height > window.innerHeight - 8 ? box.top + y - height - 12 : box.top + y + 18;
      this.node.style.transform = `translate(${Math.max(4, Math.round(left))}px, ${Math.max(4, Math.round(top))}px)`;
    }
  };
})(window.tracekit.timeline);
