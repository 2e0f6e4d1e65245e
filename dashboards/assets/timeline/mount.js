/* The timeline comes with its page, follows the view, and goes with the page. */
"use strict";
window.tracekit = window.tracekit || {};
window.tracekit.timeline = window.tracekit.timeline || {};
window.dash_clientside = window.dash_clientside || {};
(function (tl) {
  const SOON = 500;

  /** Buttons and the search field, in the bar over the timeline. */
  tl.controls = function (app) {
    const bar = tl.el("div", { class: "tkl-controls" });
    app.search = new tl.Search(app, bar);
    const zoom = (factor) => () => app.move(() => app.scale.zoom(factor, app.scale.width / 2));
    bar.append(
      tl.el("span", { class: "tkl-buttons", role: "group", "aria-label": "Zoom" },
        tl.button("Zoom out (S)", { click: zoom(1.6) }, "−"), tl.button("Zoom in (W)", { click: zoom(1 / 1.6) }, "+"), tl.button("The whole capture (0)", { click: () => app.whole() }, "All")),
      tl.button("Save a picture of the timeline", { click: () => save(app) }, "PNG"),
      tl.button("Keys and pointer (?)", { click: () => tl.help() }, "?"),
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

  /** Show a run's timeline in an element, or what has changed of the view in one that shows it already. */
  tl.mount = function (element, source) {
    const before = tl.current;
    if (before && before.alive && before.element === element && same(before.source, source)) {
      const moved = place(before.source) !== place(source);
      before.source = source;
      if (moved) before.look(tl.readAddress());
      else before.address.flush();
      return before;
    }
    if (before) before.close();
    const app = new tl.App(element, source);
    tl.current = app;
    const text = tl.el("span", {}, "");
    element.replaceChildren(tl.el("div", { class: "tkl-wait", role: "status" }, text));
    const patience = window.setTimeout(() => { text.textContent = "Reading the run; the first time this takes about a second for each 500,000 intervals"; }, SOON);
    app.open().finally(() => window.clearTimeout(patience)).catch((error) => {
      if (error.name === "AbortError" || !app.alive) return;
      element.replaceChildren(tl.el("p", { class: "tkl-trouble", role: "alert" }, `The timeline cannot be shown: ${error.message}`));
    });
    return app;
  };

  tl.unmount = () => { if (tl.current) tl.current.close(); tl.current = null; };

  window.dash_clientside.tracekit_timeline = {
    show(source) {
      const element = document.getElementById("timeline");
      if (!element || !source || !source.run) return window.dash_clientside.no_update;
      tl.mount(element, source);
      return source.run;
    },
  };
})(window.tracekit.timeline);
