/* The first response: what it has is not asked for again, and its page is removed once scripts have drawn what that shows, or someone begins
   to use the page. */
"use strict";
window.tracekit = window.tracekit || {};
window.tracekit.begin = function () {
  const LATEST_MS = 10000;
  const host = document.getElementById("first");
  const given = document.getElementById("first-layout");
  if (!host || !given) { return new window.DashRenderer(); }
  host.inert = true; // what is pressed is what scripts have drawn below it
  document.body.classList.add("tk-covered");

  const { view: search, theme, blocks } = given.dataset;
  const shown = JSON.parse(blocks);
  const color = document.documentElement.getAttribute("data-mantine-color-scheme");
  const isOther = color !== theme;
  const unasked = new Set(isOther ? [] : shown);
  const fetch = window.fetch;
  const json = (text) => new Response(text, { headers: { "Content-Type": "application/json" } });

  /* The layout in the other theme, without the content of blocks, whose charts are in colors of the first. */
  function inOther(part) {
    if (Array.isArray(part)) { return part.map(inOther); }
    const { props } = part || {};
    if (!props) { return part; }
    const { id, children } = props;
    if (id && id.type === "block") { return { ...part, props: { ...props, children: undefined, "aria-busy": "true" } }; }
    const changed = { mantine: { forceColorScheme: color }, theme: { data: color } }[id];
    return { ...part, props: { ...props, ...changed, children: inOther(children) } };
  }

  /* Whether the body of a callback asks for a block that the layout has. */
  function isGiven({ outputs, inputs }) {
    const { type, name } = (Array.isArray(outputs) && outputs[0].id) || {};
    const [view, shownIn, again] = inputs.map((one) => one.value);
    const isSame = view && view.path === window.location.pathname && view.search === search;
    return type === "block" && isSame && shownIn === theme && !again && unasked.delete(name);
  }

  function answer(path, options) {
    if (path === "/_dash-layout") { return json(isOther ? JSON.stringify(inOther(JSON.parse(given.textContent))) : given.textContent); }
    if (path === "/_dash-dependencies") { return json(window.tracekitDependencies); }
    const isAsked = path === "/_dash-update-component" && unasked.size && isGiven(JSON.parse(options.body));
    return isAsked ? new Response(null, { status: 204 }) : null;
  }

  window.fetch = (address, options) => {
    const known = answer(new URL(address, window.location.href).pathname, options);
    return known ? Promise.resolve(known) : fetch(address, options);
  };

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
  return new window.DashRenderer();
};
