/* Toolbar, pointer and keys of the aligned timelines. */
"use strict";
window.tracekit = window.tracekit || {};
window.tracekit.aligned = window.tracekit.aligned || {};
(function (al) {
  const STILL = 4;
  const ZOOM = 1.6;
  const PAN = 0.2;
  const LABEL = "Both runs on one time axis, A above B. Period and comma select the next and previous interval.";
  const tl = () => window.tracekit.timeline;

  /** Build the toolbar, the canvas and the text below it. */
  al.build = function (app, categories) {
    const { el, button } = tl();
    const zoom = (factor) => () => move(app, () => app.scale.zoom(factor, app.scale.width / 2));
    const mode = (name, text, title) => button(title, { "aria-label": null, click: () => app.alignBy(name) }, text);
    const parts = {
      earlier: button("Previous step ([)", { click: () => app.goToStep(app.step - 1) }, "‹"),
      later: button("Next step (])", { click: () => app.goToStep(app.step + 1) }, "›"),
      step: el("span", { class: "tka-step" }),
      modes: { step: mode("step", "by step", "Start of the step of both runs at zero"), op: mode("op", "by op", "Start of the selected interval and of its match at zero") },
      canvas: el("canvas", { class: "tkl-canvas", tabindex: "0", role: "application", "aria-label": LABEL }),
      said: el("p", { class: "tka-said", role: "status", "aria-live": "polite" }),
      opened: el("span", { class: "tka-opened" }),
      tooltip: el("div", { class: "tkl-tooltip", hidden: "" }),
    };
    const buttons = (label, ...content) => el("span", { class: "tkl-buttons", role: "group", "aria-label": label }, ...content);
    const bar = el("div", { class: "tkl-controls tka-bar" },
      el("span", { class: "tk-chips-label" }, "Align"), buttons("Align", parts.modes.step, parts.modes.op),
      buttons("Step", parts.earlier, parts.later), parts.step,
      buttons("Zoom", button("Zoom out (S)", { click: zoom(ZOOM) }, "−"), button("Zoom in (W)", { click: zoom(1 / ZOOM) }, "+"), button("Show the step (0)", { click: () => move(app, () => app.fit()) }, "Step")));
    const legend = el("div", { class: "tkl-legend", role: "group", "aria-label": "Categories in view" });
    parts.legend = new (tl().Legend)(legend, (category) => app.toggle(category));
    parts.stage = el("div", { class: "tka-stage" }, parts.canvas);
    app.parts = parts;
    app.colors = new (tl().Colors)(app.element, categories);
    app.element.replaceChildren(al.title(), bar, parts.stage, legend, el("div", { class: "tka-below" }, parts.said, parts.opened), parts.tooltip);
    pointer(app);
    keys(app);
    app.resizing = new ResizeObserver(() => { if (app.scale && app.element.isConnected) { app.scale.width = app.width(); app.changed(); } });
    app.resizing.observe(app.element);
    app.theming = new MutationObserver(() => { app.colors.read(); al.legend(app); app.redraw(); });
    app.theming.observe(document.documentElement, { attributes: true, attributeFilter: ["data-mantine-color-scheme"] });
  };

  function move(app, change) {
    change();
    app.changed();
  }

  /** The interval at a position, with the side that it belongs to. */
  function hit(app, event) {
    const x = event.offsetX - al.gutter(app.element);
    if (x < 0) return null;
    for (const side of app.sides) {
      const found = tl().hit(side, x, event.offsetY);
      if (found) return { ...found, side: app.sides.indexOf(side) };
    }
    return null;
  }

  function hovered(app, event) {
    const { tooltip } = app.parts;
    const found = event && hit(app, event);
    tooltip.hidden = !found;
    app.parts.canvas.classList.toggle("tkl-hovering", Boolean(found));
    if (!found) return;
    const time = found.exact ? tl().time(found.dur) : `${tl().count(found.count)} intervals`;
    tooltip.replaceChildren(tl().el("div", { class: "tkl-tip-name" }, tl().brief(found.name)), tl().el("div", {}, `${app.sides[found.side].letter} · ${time}`));
    const left = Math.min(event.clientX + 14, window.innerWidth - tooltip.offsetWidth - 8);
    tooltip.style.transform = `translate(${Math.max(4, left)}px, ${event.clientY + 16}px)`;
  }

  function pointer(app) {
    const { canvas } = app.parts;
    let drag = null;
    const on = (name, call, options) => canvas.addEventListener(name, call, { signal: app.control.signal, ...options });
    on("pointerdown", (event) => {
      if (event.button !== 0) return;
      canvas.setPointerCapture(event.pointerId);
      drag = { x: event.offsetX, last: event.offsetX, moved: false };
    });
    on("pointermove", (event) => {
      if (!drag) { hovered(app, event); return; }
      if (Math.abs(event.offsetX - drag.x) > STILL) drag.moved = true;
      if (drag.moved) move(app, () => app.scale.pan(drag.last - event.offsetX));
      drag.last = event.offsetX;
    });
    on("pointerup", (event) => {
      const clicked = drag && !drag.moved;
      drag = null;
      if (!clicked) return;
      const found = hit(app, event);
      app.select(found && { side: found.side, table: found.table, row: found.row });
    });
    on("pointercancel", () => { drag = null; });
    on("pointerleave", () => hovered(app, null));
    on("dblclick", () => { if (app.match) move(app, () => app.around()); });
    on("wheel", (event) => {
      const sideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
      if (!sideways && !event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      if (sideways) move(app, () => app.scale.pan(event.deltaX || event.deltaY));
      else move(app, () => app.scale.zoom(Math.exp(event.deltaY * 0.004), event.offsetX - al.gutter(app.element)));
    }, { passive: false });
  }

  function keys(app) {
    const zoomed = (factor) => move(app, () => app.scale.zoom(factor, app.scale.width / 2));
    const panned = (part) => move(app, () => app.scale.pan(app.scale.width * part));
    const actions = {
      w: () => zoomed(1 / ZOOM), s: () => zoomed(ZOOM), a: () => panned(-PAN), d: () => panned(PAN), arrowleft: () => panned(-PAN), arrowright: () => panned(PAN),
      0: () => move(app, () => app.fit()), f: () => { if (app.match) move(app, () => app.around()); },
      ".": () => app.next(1), ",": () => app.next(-1), "[": () => app.goToStep(app.step - 1), "]": () => app.goToStep(app.step + 1), escape: () => app.select(null),
    };
    app.parts.canvas.addEventListener("keydown", (event) => {
      const action = actions[event.key.toLowerCase()];
      if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      event.stopPropagation();
      action();
    }, { signal: app.control.signal });
  }
})(window.tracekit.aligned);
