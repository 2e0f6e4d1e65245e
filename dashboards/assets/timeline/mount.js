/* Mount the timeline with its page, and update it when the view changes. */
"use strict";
window.tracekit = window.tracekit || {};
window.tracekit.timeline = window.tracekit.timeline || {};
window.dash_clientside = window.dash_clientside || {};
(function (tl) {
  const MESSAGE_DELAY_MS = 500;

  /** Toolbar: search field and buttons. */
  tl.controls = function (app) {
    const bar = tl.el("div", { class: "tkl-controls" });
    app.search = new tl.Search(app, bar);
    const lanes = tl.el("span", { class: "tkl-controls", role: "group", "aria-label": "Lanes" });
    app.arranging = new tl.Arranging(lanes, app.lanes, (what, key) => app.arrange(what, key));
    lanes.append(tl.button("Add a lane from a SQL query", { click: () => app.queries.open() }, "Add lane"), app.clocks.button);
    app.parts.panel = tl.button("Show or hide the panel (I)", { click: () => app.layout.toggle("hidden") }, "Panel");
    app.parts.full = tl.button("Fill the window, without menu and heading (V)", { class: "tkl-button tkl-full-window", click: () => app.layout.toggle("full") }, "Full");
    bar.append(
      tl.zoomButtons(app, tl.button("Show the whole capture (0)", { click: () => app.whole() }, "All")),
      lanes,
      app.parts.panel,
      app.parts.full,
      tl.button("Save the timeline as PNG", { click: () => save(app) }, "PNG"),
      tl.button("Keyboard and mouse (?)", { click: () => window.dash_clientside.set_props("help-sheet", { opened: true }) }, "?"),
    );
    const place = document.getElementById("timeline-controls") || app.element;
    place.replaceChildren(bar);
    return bar;
  };

  function save(app) {
    app.stage.picture().toBlob((blob) => {
      const address = URL.createObjectURL(blob);
      tl.el("a", { href: address, download: `${app.source.run}-timeline.png` }).click();
      window.setTimeout(() => URL.revokeObjectURL(address), 10000);
    }, "image/png");
  }

  const same = (a, b) => a.run === b.run && a.rank === b.rank && a.device === b.device;
  const place = ({ from, to, row }) => `${from} ${to} ${row}`;

  /** Mount a run's timeline in an element, or apply a changed view to the mounted one. */
  tl.mount = function (element, source) {
    const before = tl.current;
    if (before && before.alive && before.element === element && same(before.source, source)) {
      before.source = source;
      if (!before.address) return before; // it reads the address once its lanes are there
      if (before.address.changed) { // by a link; Back was followed at once, and the view may have changed since
        before.address.adopt();
        before.applyAddress(tl.readAddress());
      } else before.address.flush();
      return before;
    }
    const stays = before && before.alive && before.lanes && before.source.run === source.run && place(before.source) === place(source);
    if (stays) before.address.rewrite();
    if (before) before.close();
    const app = new tl.OneRun(element, source);
    tl.current = app;
    const text = tl.el("span", {}, "");
    element.replaceChildren(tl.el("div", { class: "tkl-loading", role: "status" }, text));
    const delay = window.setTimeout(() => { text.textContent = "Indexing the run; takes about one second per 500,000 intervals the first time"; }, MESSAGE_DELAY_MS);
    app.open().finally(() => window.clearTimeout(delay)).catch((error) => {
      if (error.name === "AbortError" || !app.alive) return;
      element.replaceChildren(tl.el("p", { class: "tkl-error", role: "alert" }, `The timeline cannot be shown: ${error.message}`));
    });
    return app;
  };

  window.dash_clientside.tracekit_timeline = {
    show(source) {
      const element = document.getElementById("timeline");
      if (!element || !source || !source.run) return window.dash_clientside.no_update;
      tl.mount(element, source);
      return source.run;
    },
  };
})(window.tracekit.timeline);
