/* Puts two runs into the page, and keeps them with its address. */
"use strict";
window.tracekit = window.tracekit || {};
window.tracekit.timeline = window.tracekit.timeline || {};
window.dash_clientside = window.dash_clientside || {};
(function (tl) {
  const STATE = ["from", "to", "row", "side", "align", "step", "off"];

  /** Parse the state of the view from the page's address. */
  tl.readPairAddress = function () {
    const words = new URLSearchParams(window.location.search);
    const number = (name) => (/^-?\d{1,18}$/.test(words.get(name) || "") ? Number(words.get(name)) : null);
    const row = /^([a-z_]{1,40}):(\d{1,12})$/.exec(words.get("row") || "");
    return {
      ...tl.readArrangement(words), from: number("from"), to: number("to"), step: Math.max(0, number("step") || 0), align: words.get("align") === "op" ? "op" : "step",
      row: row && { side: words.get("side") === "a" ? 0 : 1, table: row[1], row: Number(row[2]) },
    };
  };

  let current = null;
  const same = (a, b) => a.base === b.base && a.run === b.run && a.varying === b.varying && a.repeats === b.repeats;
  const stateOf = (source) => STATE.map((name) => source[name] ?? "").join(" ");

  /** Show the runs of a source, or apply its changed state; null removes the view. */
  function mount(element, source) {
    const before = current;
    if (before && before.alive && before.element === element && source && same(before.source, source)) {
      const moved = source.row && stateOf(before.source) !== stateOf(source);
      before.source = source;
      before.known = window.location.search;
      if (moved && before.parts) {
        before.apply(tl.readPairAddress());
        element.scrollIntoView({ block: "nearest" });
      } else before.writeAddress();
      return;
    }
    if (before) before.close();
    current = null;
    element.classList.toggle("tka-open", Boolean(source));
    if (!source) return;
    const app = current = new tl.TwoRuns(element, source);
    element.replaceChildren(tl.pairTitle(), tl.el("p", { class: "tkl-hint", role: "status" }, "Aligning the runs"));
    app.open().catch((error) => {
      if (error.name === "AbortError" || !app.alive) return;
      element.replaceChildren(tl.el("p", { class: "tkl-error", role: "alert" }, `The runs cannot be aligned: ${error.message}`));
    });
  }

  window.addEventListener("popstate", () => {
    if (!current || !current.alive || !current.parts || window.location.pathname !== "/compare") return;
    current.known = window.location.search;
    current.apply(tl.readPairAddress());
  });

  window.dash_clientside.tracekit_aligned = {
    show(source) {
      const element = document.getElementById("aligned");
      if (element) mount(element, source || null);
      return window.dash_clientside.no_update;
    },
  };
})(window.tracekit.timeline);
