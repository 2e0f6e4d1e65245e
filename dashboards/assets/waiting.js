/* Show the elapsed time on blocks that are slow to compute, and what follows them with them; what follows a late or failed one is
   shown without it. */
"use strict";
(function () {
  const AFTER_MS = 2000;
  const LATE_MS = 15000;
  const LATE_VERDICT_MS = 1000; // what follows it has other answers, and its place is as high as most verdicts
  const FAILED_MS = 5000;
  const since = new WeakMap();
  const idle = new WeakMap();

  function update() {
    const now = Date.now();
    for (const block of document.querySelectorAll(".tk-block")) {
      const loading = block.getAttribute("data-dash-is-loading") === "true";
      const empty = block.firstChild === null && block.getAttribute("aria-busy") === "true";
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
      const isVerdict = block.closest(".tk-bound-place") && !window.tracekit.narrow();
      block.toggleAttribute("data-late", waited >= (isVerdict ? LATE_VERDICT_MS : LATE_MS));
      if (waited >= AFTER_MS) { block.setAttribute("data-waited", `${Math.floor(waited / 1000)} s`); }
    }
  }

  /* Mark what follows the first block that is being computed: the siblings behind each element around it. */
  let marked = [];
  function hideLater() {
    const page = document.getElementById("page");
    const busy = page && page.querySelector('.tk-block[aria-busy="true"]:not([data-late])');
    const later = new Set();
    if (busy) {
      for (let around = busy.parentElement; around && around !== page; around = around.parentElement) {
        for (let next = around.nextElementSibling; next; next = next.nextElementSibling) { later.add(next); }
      }
    }
    for (const node of marked) { if (!later.has(node)) { node.removeAttribute("data-later"); } }
    for (const node of later) { node.setAttribute("data-later", ""); }
    marked = [...later];
  }

  const watched = { subtree: true, childList: true, attributes: true, attributeFilter: ["aria-busy", "data-late"] };
  new MutationObserver(hideLater).observe(document.documentElement, watched); // before the next paint
  window.setInterval(update, 500);
})();
