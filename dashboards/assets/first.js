/* Remove the first response once scripts have drawn what it shows, or someone begins to use the page. */
"use strict";
(function () {
  const LATEST_MS = 10000;
  const host = document.getElementById("first");
  if (!host) { return; }
  host.inert = true; // what is pressed is what scripts have drawn below it
  document.body.classList.add("tk-covered");
  const shown = JSON.parse(host.dataset.blocks);

  function isDrawn() {
    const busy = [...document.querySelectorAll('#page .tk-block[aria-busy="true"]')].map((one) => JSON.parse(one.id).name);
    return document.querySelector("#page h1") && !shown.some((name) => busy.includes(name));
  }

  function remove() {
    host.remove();
    document.body.classList.remove("tk-covered");
  }

  function look() {
    if (isDrawn() || performance.now() > LATEST_MS) { remove(); } else if (host.isConnected) { window.requestAnimationFrame(look); }
  }
  window.requestAnimationFrame(look);
  for (const name of ["pointerdown", "keydown"]) { window.addEventListener(name, remove, { once: true, capture: true }); }
})();
