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

  components.tracekitRow = (props) => {
    if (props.value === null || props.value === undefined) {
      return make("span", { className: "tk-missing" }, props.icon ? "" : "–");
    }
    const place = props.context.timeline;
    const address = `${place}${place.includes("?") ? "&" : "?"}row=${props.table}:${props.value}`;
    const label = `Show row ${props.value} on the timeline`;
    return make(
      "a",
      {
        href: address,
        className: props.icon ? "tk-jump" : "tk-row",
        "aria-label": label,
        title: label,
        tabIndex: -1,
        onClick: (event) => follow(event, address),
      },
      props.icon ? make("span", { className: "tk-icon tk-icon-jump", "aria-hidden": "true" }) : String(props.value),
    );
  };
})();
