/* Show the elapsed time on blocks that are slow to compute; what follows a late or failed one is shown without it. */
"use strict";
(function () {
  const AFTER_MS = 2000;
  const LATE_MS = 15000;
  const FAILED_MS = 5000;
  const since = new WeakMap();
  const idle = new WeakMap();

  function update() {
    const now = Date.now();
    for (const block of document.querySelectorAll(".tk-block")) {
      const loading = block.getAttribute("data-dash-is-loading") === "true";
      const empty = block.querySelector(":scope > .mantine-Skeleton-root") !== null;
      if (loading || !empty) { idle.delete(block); } else if (!idle.has(block)) { idle.set(block, now); }
      const failed = now - (idle.get(block) ?? now) >= FAILED_MS; // empty, and no request is under way
      block.toggleAttribute("data-failed", failed);
      if (failed) {
        block.removeAttribute("data-waited");
        block.toggleAttribute("data-late", true);
        continue;
      }
      if (!loading && !empty) {
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
