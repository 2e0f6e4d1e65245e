/* Frame: theme, menu on narrow screens, links without reload, focus after navigation. */
"use strict";
window.tracekit = window.tracekit || {};
window.dash_clientside = window.dash_clientside || {};
(function () {
  const NARROW = "(max-width: 47.99em)";

  /* Navigate without reloading, like dcc.Link. */
  function go(href) {
    window.history.pushState({}, "", href);
    window.dispatchEvent(new CustomEvent("_dashprivate_pushstate"));
  }

  function isPlainClick(event) {
    return event.button === 0 && !(event.ctrlKey || event.metaKey || event.shiftKey || event.altKey);
  }

  document.addEventListener("click", (event) => {
    const link = event.target.closest ? event.target.closest("a.tk-go") : null;
    if (link && isPlainClick(event) && !event.defaultPrevented) {
      event.preventDefault();
      go(link.getAttribute("href"));
    }
  });

  function theme(clicks, stored, shown) {
    const system = window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    const now = stored || system;
    const same = window.dash_clientside.no_update;
    const next = clicks ? (now === "dark" ? "light" : "dark") : now;
    if (next === shown) { return [same, same, same]; }
    if (clicks) {
      window.localStorage.setItem("mantine-color-scheme-value", next);
      window.tracekit.nameTheme(next);
    }
    return [next, next, clicks ? next : same];
  }

  /* On narrow screens the menu covers the page, and closes on navigation. */
  function navbar(opened, _path, before) {
    const byMenu = window.dash_clientside.callback_context.triggered_id === "burger";
    const shown = Boolean(opened && byMenu);
    if (shown === !before.collapsed.mobile && shown === opened) { return [window.dash_clientside.no_update, window.dash_clientside.no_update]; }
    return [{ ...before, collapsed: { ...before.collapsed, mobile: !shown } }, shown];
  }

  let pageShown = null;

  /* Set title, address and focus after navigation. */
  function arrived(_children, view) {
    window.setTimeout(() => {
      const heading = document.querySelector("#page h1");
      document.title = heading ? `${heading.textContent} · tracekit` : "tracekit";
      if (pageShown !== null && pageShown !== window.location.pathname) {
        window.scrollTo(0, 0);
        if (heading) { heading.focus({ preventScroll: true }); }
      }
      pageShown = window.location.pathname;
      pin(view);
    }, 0);
    return null;
  }

  /* Add the displayed run to the address, so that it can be shared. */
  function pin(view) {
    const { pathname, search, hash } = window.location;
    if (view && view.path === pathname && view.search && !search && !hash) {
      window.history.replaceState(window.history.state, "", view.path + view.search);
    }
  }

  let isLong = false;

  /* What is searched in the list of runs, if it has more than the picker has been given. */
  function search(text, options, limit) {
    isLong = isLong || options.length >= limit - 1;
    return isLong ? text : window.dash_clientside.no_update;
  }

  /* What someone has chosen; nothing where the server has set the pickers, maybe for a page that was left meanwhile. */
  function chosen(...given) {
    const [offered, view] = given.splice(-2);
    const isOffered = offered !== undefined && offered !== null && offered[1].every((value, place) => (value || "") === (given[place] || ""));
    return view && !isOffered ? given : window.dash_clientside.no_update;
  }

  window.tracekit.go = go;
  window.tracekit.isPlainClick = isPlainClick;
  window.tracekit.narrow = () => window.matchMedia(NARROW).matches;
  window.dash_clientside.tracekit = Object.assign(window.dash_clientside.tracekit || {}, {
    theme,
    navbar,
    arrived,
    search,
    chosen,
    sheet: () => true,
    again: (clicks) => (clicks ? Date.now() : window.dash_clientside.no_update),
  });
})();
