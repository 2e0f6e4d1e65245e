/* DOM helpers and formatting. Text from traces is untrusted and only ever set as text. */
"use strict";
window.tracekit = window.tracekit || {};
window.tracekit.timeline = window.tracekit.timeline || {};
(function (tl) {
  const TIMES = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]];
  const SIZES = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]];
  const UNSAFE = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069\u3164\ud800-\udfff\ufeff\uffa0\ufff9-\ufffb]/gu;
  const NAMESPACES = /\b(?:[A-Za-z_]\w*::|\(anonymous namespace\)::)+(?=[A-Za-z_({])/g;
  const two = new Intl.NumberFormat("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
  const whole = new Intl.NumberFormat("en-US");
  const briefs = new Map();

  /** Create an element with attributes (functions become listeners) and children (strings become text). */
  tl.el = function (tag, attributes, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (typeof value === "function") node.addEventListener(name, value);
      else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
    }
    node.append(...children.filter((child) => child !== null && child !== undefined));
    return node;
  };

  tl.button = function (label, attributes, ...children) {
    return tl.el("button", { type: "button", class: "tkl-button", "aria-label": label, title: label, ...attributes },
      ...(children.length ? children : [label]));
  };

  /** Format a duration: 1.23 ms. */
  tl.time = function (ns) {
    if (ns === null || ns === undefined) return "–";
    if (ns < 0) return `−${tl.time(-ns)}`;
    const scale = TIMES.find(([size]) => Math.abs(ns) >= size);
    return scale ? `${two.format(ns / scale[0])} ${scale[1]}` : `${Number(ns.toPrecision(6))} ns`;
  };

  /** Format bytes: 1.23 GiB. */
  tl.bytes = function (value) {
    const scale = SIZES.find(([size]) => Math.abs(value) >= size);
    return scale ? `${two.format(value / scale[0])} ${scale[1]}` : `${value} B`;
  };

  /** Format a quantity: 1.23 GiB, 97.4%, 512 W. */
  tl.amount = function (value, unit) {
    if (unit === "bytes") return tl.bytes(value);
    const number = Number(value.toPrecision(Math.abs(value) >= 1000 ? 6 : 4)).toLocaleString("en-US", { maximumFractionDigits: 3 }).replace("-", "−");
    return unit === "%" ? `${number}%` : unit && unit !== "count" ? `${number} ${unit}` : number;
  };

  tl.count = (value) => (value === null || value === undefined ? "–" : whole.format(value));
  tl.share = (value) => (value > 1.0005 ? `${value.toFixed(1)}×` : `${(100 * value).toFixed(1)}%`);

  /** Escape control, bidirectional and invisible characters. */
  tl.clean = (text) => String(text).replace(UNSAFE, (one) => `\\u${one.codePointAt(0).toString(16).padStart(4, "0")}`);

  /** Cut text in the middle, since both ends identify a kernel. */
  tl.cut = function (text, width) {
    if (text.length <= width) return text;
    if (width < 2) return "";
    const tail = Math.floor((width - 1) / 2);
    return `${text.slice(0, width - 1 - tail)}…${text.slice(text.length - tail)}`;
  };

  /** Shorten a name by dropping namespaces and return type. */
  tl.brief = function (name) {
    let short = briefs.get(name);
    if (short === undefined) {
      short = tl.clean(name.slice(0, 1000));
      if (/[<(]/.test(short)) short = short.replace(NAMESPACES, "");
      short = short.replace(/^void /, "");
      if (briefs.size > 20000) briefs.clear();
      briefs.set(name, short);
    }
    return short;
  };

  /** A name cut in the middle, with the full name as tooltip. */
  tl.named = (name, width) => tl.el("span", { class: "tkl-name", title: tl.clean(name) }, tl.cut(tl.brief(name), width));

  tl.copyButton = (text, what) => tl.button(`Copy ${what}`, {
    class: "tkl-button tkl-copy",
    click: (event) => {
      const button = event.currentTarget;
      navigator.clipboard.writeText(text).then(
        () => { button.textContent = "Copied"; window.setTimeout(() => { button.textContent = "Copy"; }, 1200); },
        () => { button.textContent = "Copy failed"; },
      );
    },
  }, "Copy");

  /** Debounce a function. */
  tl.later = function (wait, call) {
    let timer = 0;
    const wrapped = (...given) => { window.clearTimeout(timer); timer = window.setTimeout(() => call(...given), wait); };
    wrapped.cancel = () => window.clearTimeout(timer);
    return wrapped;
  };
})(window.tracekit.timeline);
