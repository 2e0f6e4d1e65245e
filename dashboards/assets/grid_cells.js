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
