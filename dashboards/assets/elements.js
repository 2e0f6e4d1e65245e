/* Draw elements that `components/elements.py` describes, as one component of Dash. */
"use strict";
window.tracekit = window.tracekit || {};
(function () {
  /* Follow a link like dcc.Link. */
  function follow(event) {
    if (!window.tracekit.isPlainClick(event)) return;
    event.preventDefault();
    window.tracekit.go(event.currentTarget.getAttribute("href"));
    window.scrollTo(0, 0);
  }

  function draw(node, places) {
    if (!Array.isArray(node)) return typeof node === "number" ? places[node] : node;
    const [tag, attributes, ...content] = node;
    const drawn = content.map((one) => draw(one, places));
    if (tag !== "link") return window.React.createElement(tag, attributes, ...drawn);
    return window.React.createElement("a", { ...attributes, onClick: follow }, ...drawn);
  }

  window.tracekit.Elements = ({ content, children }) => {
    const drawn = content.map((node) => draw(node, [children].flat()));
    return window.React.createElement(window.React.Fragment, null, ...drawn);
  };

  const NEAR = "400px";

  /* Call a function once a node is in the window or near; returns what stops waiting for it. */
  window.tracekit.whenNear = (node, act) => {
    const watching = new IntersectionObserver((entries) => {
      if (entries.some((one) => one.isIntersecting)) { watching.disconnect(); act(); }
    }, { rootMargin: NEAR });
    watching.observe(node);
    return () => watching.disconnect();
  };

  /* Content that is made once it is in the window or near. */
  window.tracekit.Later = ({ children }) => {
    const { createElement, useEffect, useRef, useState } = window.React;
    const [shown, show] = useState(false);
    const place = useRef(null);
    useEffect(() => (shown ? undefined : window.tracekit.whenNear(place.current, () => show(true))), [shown]);
    return shown ? children : createElement("div", { ref: place, className: "tk-later" });
  };
})();
