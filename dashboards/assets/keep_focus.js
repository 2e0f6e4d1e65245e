/* A choice that is a link stays where it is: its block is filled anew, and focus and scroll come back to it. */
"use strict";
(() => {
  let kept = null;

  function find(label, at) {
    const groups = [...document.querySelectorAll(".tk-chips[aria-label]")];
    const group = groups.find((one) => one.getAttribute("aria-label") === label);
    return group ? group.querySelectorAll(".tk-chip")[at] : undefined;
  }

  function remember(event) {
    const chip = event.target.closest ? event.target.closest("a.tk-chip") : null;
    const group = chip && chip.closest(".tk-chips[aria-label]");
    if (!group || chip.hasAttribute("download")) {
      if (event.type === "click") kept = null;
      return;
    }
    const at = [...group.querySelectorAll(".tk-chip")].indexOf(chip);
    kept = { label: group.getAttribute("aria-label"), at, top: window.scrollY, path: window.location.pathname };
  }

  function restore() {
    if (!kept || window.location.pathname !== kept.path || document.activeElement !== document.body) return;
    const chip = find(kept.label, kept.at);
    if (!chip) return;
    chip.focus({ preventScroll: true });
    window.scrollTo(0, kept.top);
  }

  document.addEventListener("click", remember, true);
  document.addEventListener("keydown", (event) => { if (event.key === "Tab") kept = null; }, true);
  new MutationObserver(restore).observe(document.documentElement, { childList: true, subtree: true });
})();
