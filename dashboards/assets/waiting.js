/* Show the elapsed time on blocks that are slow to compute; what follows a late one is shown without it. */
"use strict";
(function () {
  const AFTER_MS = 2000;
  const LATE_MS = 15000;
  const since = new WeakMap();

  function update() {
    const now = Date.now();
    for (const block of document.querySelectorAll(".tk-block")) {
      const busy = block.getAttribute("data-dash-is-loading") === "true"
        || block.querySelector(":scope > .mantine-Skeleton-root") !== null;
      if (!busy) {
        since.delete(block);
        block.removeAttribute("data-waited");
        block.removeAttribute("data-late");
        continue;
      }
      if (!since.has(block)) { since.set(block, now); }
      const waited = now - since.get(block);
      block.toggleAttribute("data-late", waited >= LATE_MS);
      if (waited >= AFTER_MS) { block.setAttribute("data-waited", `${Math.floor(waited / 1000)} s`); }
    }
  }

  window.setInterval(update, 500);
})();
