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
    if (props.value === null || props.value === undefined) {
      return make("span", { className: "tk-missing" }, props.icon ? "" : "–");
    }
    const label = `Show row ${props.value} on the timeline`;
    return jump(props, `row=${props.table}:${props.value}`, label, props.icon ? "" : String(props.value));
  };

  const LONGEST_NAME = 2000;
  const COUNTS = { longest: "the longest", next: "this" };

  /* Rank and device of a row, as the timeline reads them. */
  function placeOf({ data, rank, device }) {
    const known = (name) => name && Number.isInteger(data[name]) && data[name] >= 0;
    return known(rank) ? `@${data[rank]}${known(device) ? `.${data[device]}` : ""}` : "";
  }

  /* A link to the longest interval that a row names, to the one that it is, or to its step. */
  components.tracekitOccurrence = (props) => {
    const { value, go, mode, texts } = props;
    const given = value === null || value === undefined ? "" : String(value);
    const name = Object.hasOwn(texts, given) ? texts[given] : given;
    if (!name || (mode && /^\((?!anonymous namespace)/.test(name))) {
      return make("span", { className: "tk-missing" }, "");
    }
    if (go === "step") {
      return jump(props, `go=step:${name}${placeOf(props)}`, `Show step ${name} on the timeline`);
    }
    const fits = name.length <= LONGEST_NAME;
    const words = new URLSearchParams({ q: name.slice(0, fits ? LONGEST_NAME : 400), mode: fits ? mode : "text" });
    if (go === "longest") {
      words.set("order", "longest");
    }
    const start = go === "next" ? `:${props.data.start_ns}` : "";
    const label = `Show ${COUNTS[go]} ${name.slice(0, 120)} on the timeline`;
    return jump(props, `${words}&go=${go}${start}${placeOf(props)}`, label);
  };
})();
