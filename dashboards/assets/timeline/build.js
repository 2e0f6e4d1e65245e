/* Build the DOM and parts of a timeline. */
"use strict";
window.tracekit = window.tracekit || {};
window.tracekit.timeline = window.tracekit.timeline || {};
(function (tl) {
  /** Build a timeline from the server's lane list. */
  tl.build = function (app, info) {
    if (!info.lanes.length) throw new Error("the run has no intervals for this rank and device");
    app.parts = app.stage.build();
    const legend = tl.el("div", { class: "tkl-legend", role: "group", "aria-label": "Categories in view" });
    const status = tl.el("div", { class: "tkl-status", role: "status", "aria-live": "polite" });
    const table = tl.el("section", { class: "tkl-panel tkl-below", "aria-label": "Intervals in view" });
    const details = tl.el("section", { class: "tkl-details", id: "timeline-details", "aria-label": "Selection" });
    const shares = tl.el("section", { class: "tkl-shares", "aria-label": "Categories in view" });
    const clocks = tl.el("section", { class: "tkl-shares", "aria-label": "Clocks of ranks" });
    const queries = tl.el("section", { class: "tkl-shares", "aria-label": "Lanes from SQL" });
    const notes = tl.el("section", { class: "tkl-shares", "aria-label": "Notes" });
    const views = tl.el("section", { class: "tkl-shares", "aria-label": "Views" });
    const side = tl.el("aside", { class: "tkl-panel tkl-side", id: "timeline-side", "aria-label": "Selection and range" }, details, shares, clocks, queries, notes, views);
    const main = tl.el("div", { class: "tkl-main" }, app.parts.stage, legend, status, table);
    app.tooltip = new tl.Tooltip(app);
    app.layout = new tl.Layout(app);
    app.element.replaceChildren(main, app.layout.edge, side, app.tooltip.node);
    Object.assign(app.parts, { legend, status, side });
    app.scale = new tl.Scale(info.start_ns, info.end_ns, Math.max(100, app.parts.right.clientWidth));
    app.colors = new tl.Colors(app.element, info.categories);
    app.heading = new tl.Head(app.parts.head, tl.overviewLanes(info.lanes));
    app.labels = new tl.Labels(app.parts.pins, app.parts.scroller, (set, key) => app.arrange(set, key));
    new tl.LaneDrag(app, app.parts.scroller, (what, key) => app.arrange(what, key));
    app.legend = new tl.Legend(legend, (id) => app.toggle(id));
    app.table = new tl.Table(app, table);
    app.details = new tl.Details(app, details);
    app.clocks = new tl.Clocks(app, clocks);
    app.queries = new tl.QueryLanes(app, queries);
    app.notes = new tl.Notes(app, notes);
    app.views = new tl.Views(app, views);
    app.shares = new tl.Shares(app, shares);
    app.controls = tl.controls(app);
    app.address = new tl.Address(app);
    new tl.Pointer(app);
    new tl.Keys(app);
  };
})(window.tracekit.timeline);
