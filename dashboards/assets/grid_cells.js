/* Cell renderers: long names cut in the middle, and timeline links. */
(() => {
  "use strict";
  const TAIL = 14;
  const components = window.dashAgGridComponentFunctions;
  const make = (...parts) => window.React.createElement(...parts);

  components.tracekitName = (props) => {
    if (props.value === null || props.value === undefined) {
      return make("span", { className: "tk-missing" }, "–");
    }
    const text = String(props.value);
    if (text.length <= TAIL + 8) {
      return make("span", null, text);
    }
    return make(
      "span",
      { className: "tk-name" },
      make("span", { className: "tk-name-head" }, text.slice(0, -TAIL)),
      make("span", { className: "tk-name-tail" }, text.slice(-TAIL)),
    );
  };

  /* Name in a tree, indented, with a button that shows or hides the rows below. */
  components.tracekitTree = (props) => {
    const { tk_open: open, tk_closed: closed } = props.data;
    const label = `${open ? "Close" : "Open"} ${props.value}`;
    const toggle = make(
      "button",
      {
        type: "button",
        className: "tk-tree-toggle",
        tabIndex: -1,
        "aria-expanded": Boolean(open),
        "aria-label": label,
        title: label,
        onClick: () => window.tracekit.grid.toggle(props.api, props.data),
      },
      open ? "▾" : "▸",
    );
    return make(
      "span",
      { className: "tk-tree", style: { paddingLeft: `${14 * props.data[props.depth]}px` }, title: String(props.value) },
      open || closed ? toggle : make("span", { className: "tk-tree-leaf" }),
      make("span", { className: "tk-tree-name" }, String(props.value)),
    );
  };

  /* Follow a link without reloading, like dcc.Link. */
  function follow(event, address) {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) {
      return;
    }
    event.preventDefault();
    window.history.pushState({}, "", address);
    window.dispatchEvent(new CustomEvent("_dashprivate_pushstate"));
    window.dispatchEvent(new CustomEvent("_dashprivate_historychange"));
  }

  /* A link to a place on the timeline: an icon, or a text. */
  function jump(props, words, label, text) {
    const place = props.context.timeline;
    const address = `${place}${place.includes("?") ? "&" : "?"}${words}`;
    const icon = make("span", { className: "tk-icon tk-icon-jump", "aria-hidden": "true" });
    return make(
      "a",
      {
        href: address,
        className: text ? "tk-row" : "tk-jump",
        "aria-label": label,
        title: label,
        tabIndex: -1,
        onClick: (event) => follow(event, address),
      },
      text || icon,
    );
  }

  components.tracekitRow = (props) => {
    const rows = [[props.value, props.table], ...(props.others || []).map(([name, table]) => [props.data && props.data[name], table])];
    const [row, table] = rows.find(([value]) => value !== null && value !== undefined) || [];
    if (table === undefined) {
      return make("span", { className: "tk-missing" }, props.icon ? "" : "–");
    }
    return jump(props, `row=${table}:${row}`, `Show row ${row} on the timeline`, props.icon ? "" : String(row));
  };

  const LONGEST_NAME = 2000;

  /* Rank and device of a row, as the timeline reads them, and in words. */
  function placeOf({ data, rank, device }) {
    const [ranks, devices] = [rank, device].map((name) => (name && Number.isInteger(data[name]) && data[name] >= 0 ? [data[name]] : []));
    const address = [...(ranks.length || devices.length ? ["@"] : []), ...ranks, ...devices.map((one) => `.${one}`)].join("");
    return { address, words: [...ranks.map((one) => `rank ${one}`), ...devices.map((one) => `device ${one}`)].join(", ") };
  }

  /* What a row is searched for, and how; empty if there is no interval of its value. */
  function searchOf({ value, data, device, mode, texts, prefix, text, host }) {
    const given = value === null || value === undefined ? "" : String(value);
    if (text) {
      return [given && (device && data[device] < 0 ? host : text), mode];
    }
    if (Object.hasOwn(texts, given)) {
      return texts[given];
    }
    return mode && given && !/^\((?!anonymous namespace)/.test(given) ? [prefix + given, mode] : ["", mode];
  }

  /* A link to the longest interval that a row stands for, to the one that it is, or to a step. */
  components.tracekitOccurrence = (props) => {
    const { go, at, text, value } = props;
    const place = placeOf(props);
    const of = text && place.words ? ` of ${place.words}` : "";
    if (go === "step" && (text || value !== null)) {
      const [which, step] = text ? ["", `the longest step${of}`] : [`:${value}`, `step ${value}`];
      return jump(props, `go=step${which}${place.address}`, `Show ${step} on the timeline`);
    }
    const [name, mode] = searchOf(props);
    if (!name) {
      return make("span", { className: "tk-missing" }, "");
    }
    const fits = name.length <= LONGEST_NAME;
    const words = new URLSearchParams({ q: name.slice(0, fits ? LONGEST_NAME : 400), mode: fits ? mode : "text" });
    if (go === "longest") {
      words.set("order", "longest");
    }
    const start = go === "next" ? `:${props.data[at]}` : "";
    const which = go === "longest" ? "the longest" : text ? "the next" : "this";
    const label = `Show ${which} ${name.slice(0, 120)}${of} on the timeline`;
    return jump(props, `${words}&go=${go}${start}${place.address}`, label);
  };
})();
