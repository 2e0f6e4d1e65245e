/* What a comparison computes now, asked of the server until it has ended: callbacks wait for one another, this does not. */
"use strict";
(() => {
  const EVERY_MS = 700;
  const PAGE = "/compare";
  let ended = "";
  let asking = false;

  function show(text) {
    const place = document.getElementById("compare-stage");
    if (place && place.textContent !== text) place.textContent = text;
  }

  async function ask() {
    const address = window.location.pathname + window.location.search;
    if (asking || window.location.pathname !== PAGE || address === ended) return;
    asking = true;
    try {
      const answer = await fetch(`/progress/compare${window.location.search}`);
      const told = answer.ok ? await answer.json() : { text: "", ended: true };
      show(told.text);
      if (told.ended) ended = address;
    } catch {
      show("");
    } finally {
      asking = false;
    }
  }

  window.setInterval(ask, EVERY_MS);
})();
