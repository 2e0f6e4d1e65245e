/* Interactive flame graph: zoom, search, keyboard; see flame_tree.js and flame_draw.js. */
"use strict";
(function () {
  window.dash_clientside = window.dash_clientside || {};
  let shown = null;

  class Flame {
    constructor(host, data, dark) {
      this.host = host;
      this.tree = new window.tracekit.flameTree.Tree(data);
      this.state = { zoomed: 0, current: 0, dark, found: new Set() };
      this.canvas = document.createElement("canvas");
      this.canvas.tabIndex = 0;
      this.canvas.setAttribute("role", "img");
      this.canvas.setAttribute("aria-label", host.getAttribute("aria-label"));
      this.tip = document.createElement("div");
      this.tip.className = "tk-flame-tip";
      this.tip.hidden = true;
      host.replaceChildren(this.canvas, this.tip);
      this.canvas.addEventListener("click", (event) => this.pick(event));
      this.canvas.addEventListener("mousemove", (event) => this.hover(event));
      this.canvas.addEventListener("mouseleave", () => { this.tip.hidden = true; });
      this.canvas.addEventListener("keydown", (event) => this.key(event));
      this.resizeObserver = new ResizeObserver(() => this.draw());
      this.resizeObserver.observe(host);
      this.draw();
    }

    draw() {
      if (!this.host.isConnected) return this.resizeObserver.disconnect();
      this.boxes = window.tracekit.flameDraw.draw(this.canvas, this.tree, this.state);
      return undefined;
    }

    at(event) {
      const box = this.canvas.getBoundingClientRect();
      const x = event.clientX - box.left;
      const y = event.clientY - box.top;
      return this.boxes.find((one) => x >= one.x && x < one.x + one.w && y >= one.y && y < one.y + 22);
    }

    pick(event) {
      const box = this.at(event);
      if (box) this.zoom(box.at);
    }

    zoom(at) {
      this.state.zoomed = at;
      this.go(at);
    }

    go(at) {
      this.state.current = at;
      this.draw();
      const status = document.getElementById("flame-status");
      const path = [...this.tree.ancestors(at), at].map((each) => this.tree.name(each));
      const text = `${this.tree.lines(at).slice(1).join(" · ")} · ${path.join(" › ")}`;
      if (status) status.textContent = text;
      this.canvas.setAttribute("aria-label", text);
    }

    hover(event) {
      const box = this.at(event);
      this.tip.hidden = !box;
      if (!box) return;
      this.tip.textContent = this.tree.lines(box.at).join("\n");
      const inside = this.host.getBoundingClientRect();
      const x = Math.min(event.clientX - inside.left + 14, this.host.clientWidth - this.tip.offsetWidth - 4);
      this.tip.style.left = `${Math.max(0, x)}px`;
      this.tip.style.top = `${event.clientY - inside.top + 18}px`;
    }

    key(event) {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const current = this.state.current;
      const moves = {
        ArrowDown: () => this.go(this.tree.children[current][0] ?? current),
        ArrowUp: () => this.up(current),
        ArrowLeft: () => this.go(this.tree.sibling(current, -1)),
        ArrowRight: () => this.go(this.tree.sibling(current, 1)),
        Enter: () => this.zoom(current),
        Escape: () => this.out(),
        "/": () => document.getElementById("flame-search")?.focus(),
      };
      if (!moves[event.key]) return;
      event.preventDefault();
      event.stopPropagation();
      moves[event.key]();
      const outside = !this.boxes.some((box) => box.at === this.state.current);
      if (outside) this.zoom(this.tree.data.parent[this.state.current]);
    }

    up(current) {
      const above = Math.max(0, this.tree.data.parent[current]);
      if (current === this.state.zoomed) this.zoom(above);
      else this.go(above);
    }

    out() {
      this.zoom(Math.max(0, this.tree.data.parent[this.state.zoomed]));
    }

    search(text) {
      const { found, sum } = this.tree.search(text);
      this.state.found = found;
      this.draw();
      if (!text.trim()) return "";
      if (!found.size) return "no matches";
      const { time, share } = window.tracekit.flameTree;
      return `${found.size.toLocaleString("en-US")} ${found.size === 1 ? "node" : "nodes"}, ${time(sum)}, ${share(sum, this.tree.total(0))} of total`;
    }
  }

  Object.assign((window.dash_clientside.tracekit = window.dash_clientside.tracekit || {}), {
    flame(data, theme) {
      const host = document.getElementById("flame");
      if (!host || !data) return "";
      shown?.resizeObserver.disconnect();
      shown = new Flame(host, data, theme === "dark");
      return "";
    },
    flameSearch(text) {
      return shown ? shown.search(text || "") : "";
    },
  });
})();
