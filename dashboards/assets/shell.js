/* The frame: theme, menu on narrow screens, focus after a page arrived. */
"use strict";
window.dash_clientside = window.dash_clientside || {};
window.dash_clientside.tracekit = Object.assign(window.dash_clientside.tracekit || {}, {
  theme(clicks, stored) {
    const system = window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    const now = stored || system;
    const next = clicks ? (now === "dark" ? "light" : "dark") : now;
    return [next, next];
  },
  navbar(opened, _path, navbar) {
    const byMenu = window.dash_clientside.callback_context.triggered_id !== "url";
    return { ...navbar, collapsed: { mobile: !(opened && byMenu) } };
  },
  arrived() {
    const title = document.querySelector("#page h1");
    document.title = title ? `${title.textContent} · tracekit` : "tracekit";
    window.scrollTo(0, 0);
    return null;
  },
});
