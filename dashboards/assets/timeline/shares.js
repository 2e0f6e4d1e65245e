/* Totals of the range by category, in the panel. */
"use strict";
window.tracekit = window.tracekit || {};
window.tracekit.timeline = window.tracekit.timeline || {};
(function (tl) {
  /** Count, total time and share of the range by category. */
  tl.Shares = class {
    constructor(app, element) {
      Object.assign(this, { app, element });
      this.title = tl.el("h2", { class: "tkl-subtitle" }, "In view, by category");
      this.body = tl.el("tbody", {});
      const heads = [["Category", ""], ["Count", "intervals that touch the range"], ["Total", "sum of their parts in the range"], ["Share", "total over the length of the range; 2.0× are two at once on average, beside each other or nested"]];
      element.append(this.title, tl.el("table", { class: "tkl-table" },
        tl.el("thead", {}, tl.el("tr", {}, ...heads.map(([text, title], place) => tl.el("th", { scope: "col", title: title || null, class: place ? "tkl-number" : null }, text)))), this.body));
      element.classList.add("tkl-pending");
    }

    /** Show what follows, which the first totals move no more. */
    settle() { this.element.classList.remove("tkl-pending"); }

    show(categories, { from, to, marked }) {
      this.settle();
      const { colors } = this.app;
      const ids = new Map(colors.names.map((name, id) => [name, id]));
      const title = marked ? "In the marked range, by category" : "In view, by category";
      this.title.textContent = `${title} (${tl.time(to - from)})`;
      this.element.setAttribute("aria-label", title);
      this.body.replaceChildren(...categories.map(({ category, count, sum_ns: total, share }) => tl.el("tr", {},
        tl.el("td", {}, this.#link(category, ids.get(category))),
        tl.el("td", { class: "tkl-number" }, tl.count(count)),
        tl.el("td", { class: "tkl-number", title: `${tl.count(total)} ns` }, tl.time(total)),
        tl.el("td", { class: "tkl-number" }, tl.share(share)))));
      if (!categories.length) this.body.replaceChildren(tl.el("tr", {}, tl.el("td", { colspan: "4", class: "tkl-hint" }, "No intervals in this time range on the visible lanes.")));
    }

    #link(category, id) {
      const name = category.replaceAll("_", " ");
      return tl.el("button", { type: "button", class: "tkl-link", title: `Search for ${name}, the longest first`, click: () => this.app.search.set({ q: category, mode: "category", longest: true }) },
        tl.el("span", { class: "tkl-link-name" }, this.app.colors.swatch(id), name));
    }
  };
})(window.tracekit.timeline);
