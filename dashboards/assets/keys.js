/* Global shortcuts. Pages that handle a key themselves call preventDefault. */
"use strict";
(function () {
  const WAIT_MS = 1500;
  let prefixTime = 0;

  function typing(target) {
    return target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
  }

  function visible(element) {
    return element.offsetParent !== null;
  }

  function search() {
    const fields = document.querySelectorAll("#page [data-search] input, #page input[type=search]");
    const field = Array.from(fields).find(visible);
    if (field) { field.focus(); field.select(); }
    return Boolean(field);
  }

  function toggleSheet() {
    const opened = Boolean(document.querySelector(".tk-keys"));
    window.dash_clientside.set_props("help-sheet", { opened: !opened });
    return true;
  }

  function toggleMenu() {
    if (window.tracekit.narrow()) {
      document.getElementById("burger").click();
      return true;
    }
    document.documentElement.classList.toggle("tk-no-menu");
    window.dispatchEvent(new Event("resize"));
    return true;
  }

  function press(id) {
    const button = document.getElementById(id);
    if (button) { button.click(); }
    return Boolean(button);
  }

  function open(key) {
    const link = Array.from(document.querySelectorAll("#menu a")).find((one) => one.dataset.key === key);
    if (link) { link.click(); }
    return Boolean(link);
  }

  function closeMenu() {
    const burger = document.querySelector("#burger");
    const opened = window.tracekit.narrow() && burger && burger.querySelector("[data-opened]");
    if (opened) { burger.click(); burger.focus(); }
    return Boolean(opened);
  }

  const KEYS = {
    "?": toggleSheet,
    "/": search,
    x: () => press("theme-toggle"),
    b: toggleMenu,
    g: () => { prefixTime = Date.now(); return true; },
    Escape: closeMenu,
  };

  function act(event) {
    if (Date.now() - prefixTime < WAIT_MS && event.key.length === 1 && event.key !== "g") {
      prefixTime = 0;
      return open(event.key.toLowerCase());
    }
    const action = Object.hasOwn(KEYS, event.key) ? KEYS[event.key] : null;
    return action ? action() : false;
  }

  /* In the capture phase, so that pages do not handle the letter after g. */
  document.addEventListener("keydown", (event) => {
    const after = Date.now() - prefixTime < WAIT_MS;
    if (!after || event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) { return; }
    if (act(event)) { event.preventDefault(); event.stopPropagation(); }
  }, true);

  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) { return; }
    if (typing(event.target)) { return; }
    if (act(event)) { event.preventDefault(); }
  });
})();
