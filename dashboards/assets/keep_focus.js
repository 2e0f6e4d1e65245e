/* Restore focus and scroll position after a chip link has recomputed its block. */
"use strict";
(() => {
  let saved = null;

  function find(label, at) {
    const groups = [...document.querySelectorAll(".tk-chips[aria-label]")];
    const group = groups.find((one) => one.getAttribute("aria-label") === label);
    return group ? group.querySelectorAll(".tk-chip")[at] : undefined;
  }

  function remember(event) {
    const chip = event.target.closest ? event.target.closest("a.tk-chip") : null;
    const group = chip && chip.closest(".tk-chips[aria-label]");
    if (!group || chip.hasAttribute("download")) {
      if (event.type === "click") saved = null;
      return;
    }
    const at = [...group.querySelectorAll(".tk-chip")].indexOf(chip);
    saved = { label: group.getAttribute("aria-label"), at, top: window.scrollY, path: window.location.pathname };
  }

  function restore() {
    if (!saved || window.location.pathname !== saved.path || document.activeElement !== document.body) return;
    const chip = find(saved.label, saved.at);
    if (!chip) return;
    chip.focus({ preventScroll: true });
    window.scrollTo(0, saved.top);
  }

  document.addEventListener("click", remember, true);
  document.addEventListener("keydown", (event) => { if (event.key === "Tab") saved = null; }, true);
  new MutationObserver(restore).observe(document.documentElement, { childList: true, subtree: true });
})();
