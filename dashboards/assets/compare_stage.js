/* Poll the progress of a running comparison. Not a Dash callback, since those wait for one another. */
"use strict";
(() => {
  const POLL_MS = 700;
  const PAGE = "/compare";
  let ended = "";
  let polling = false;

  function show(text) {
    const place = document.getElementById("compare-stage");
    if (place && place.textContent !== text) place.textContent = text;
  }

  async function poll() {
    const address = window.location.pathname + window.location.search;
    if (polling || window.location.pathname !== PAGE || address === ended) return;
    polling = true;
    try {
      const answer = await fetch(`/progress/compare${window.location.search}`);
      const progress = answer.ok ? await answer.json() : { text: "", ended: true };
      show(progress.text);
      if (progress.ended) ended = address;
    } catch {
      show("");
    } finally {
      polling = false;
    }
  }

  window.setInterval(poll, POLL_MS);
})();
