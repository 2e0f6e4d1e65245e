/* Build the DOM and parts of the timeline of one run. */
"use strict";
window.tracekit = window.tracekit || {};
window.tracekit.timeline = window.tracekit.timeline || {};
(function (tl) {
  tl.buttons = (label, ...content) => tl.el("span", { class: "tkl-buttons", role: "group", "aria-label": label }, ...content);

  /** Buttons that zoom, and that which shows all. */
  tl.zoomButtons = function (app, all) {
    const zoom = (factor) => () => app.move(() => app.scale.zoom(factor, app.scale.width / 2));
    return tl.buttons("Zoom", tl.button("Zoom out (S)", { click: zoom(1.6) }, "−"), tl.button("Zoom in (W)", { click: zoom(1 / 1.6) }, "+"), all);
  };

  /** Build a timeline from the server's lane list. */
  tl.build = function (app, info) {
    if (!info.lanes.length) throw new Error("the run has no intervals for this rank and device");
    const status = tl.el("div", { class: "tkl-status", role: "status", "aria-live": "polite" });
    const table = tl.el("section", { class: "tkl-panel tkl-below", "aria-label": "Intervals in view" });
    const details = tl.el("section", { class: "tkl-details", id: "timeline-details", "aria-label": "Selection" });
    const shares = tl.el("section", { class: "tkl-shares", "aria-label": "Categories in view" });
    const clocks = tl.el("section", { class: "tkl-shares", "aria-label": "Clocks of ranks" });
    const queries = tl.el("section", { class: "tkl-shares", "aria-label": "Lanes from SQL" });
    const notes = tl.el("section", { class: "tkl-shares", "aria-label": "Notes" });
    const views = tl.el("section", { class: "tkl-shares", "aria-label": "Views" });
    const side = tl.el("aside", { class: "tkl-panel tkl-side", id: "timeline-side", "aria-label": "Selection and range" }, details, shares, clocks, queries, notes, views);
    app.layout = new tl.Layout(app);
    app.assemble(info, (parts, legend) => {
      const main = tl.el("div", { class: "tkl-main" }, parts.stage, legend, status, table);
      app.element.replaceChildren(main, app.layout.edge, side, app.tooltip.node);
      Object.assign(parts, { legend, status, side });
    });
    app.table = new tl.Table(app, table);
    app.details = new tl.Details(app, details);
    app.clocks = new tl.Clocks(app, clocks);
    app.queries = new tl.QueryLanes(app, queries);
    app.notes = new tl.Notes(app, notes);
    app.views = new tl.Views(app, views);
    app.shares = new tl.Shares(app, shares);
    app.controls = tl.controls(app);
    app.address = new tl.Address(app);
  };
})(window.tracekit.timeline);
