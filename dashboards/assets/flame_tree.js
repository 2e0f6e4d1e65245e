/* Call tree of a flame graph: children, positions and search. */
"use strict";
(function () {
  window.tracekit = window.tracekit || {};
  const time = (ns) => window.tracekit.timeline.time(ns);

  function share(part, overall) {
    return overall ? `${((100 * part) / overall).toFixed(1)}%` : "–";
  }

  class Tree {
    constructor(data) {
      this.data = data;
      this.size = data.parent.length;
      this.children = Array.from({ length: this.size }, () => []);
      this.depth = new Int32Array(this.size);
      for (let at = 1; at < this.size; at += 1) {
        this.children[data.parent[at]].push(at);
        this.depth[at] = this.depth[data.parent[at]] + 1;
      }
      for (const list of this.children) list.sort((a, b) => data.total[b] - data.total[a] || a - b);
      this.start = new Float64Array(this.size);
      this.place(0, 0);
      this.deepest = this.depth.reduce((most, each) => Math.max(most, each), 0);
    }

    /* Place children side by side, from their parent's start. */
    place(at, start) {
      const stack = [[at, start]];
      while (stack.length) {
        const [node, from] = stack.pop();
        this.start[node] = from;
        let next = from;
        for (const child of this.children[node]) {
          stack.push([child, next]);
          next += this.data.total[child];
        }
      }
    }

    name(at) {
      return this.data.names[this.data.name[at]];
    }

    total(at) {
      return this.data.total[at];
    }

    /* Ancestors of a node, outermost first. */
    ancestors(at) {
      const found = [];
      for (let up = this.data.parent[at]; up >= 0; up = this.data.parent[up]) found.unshift(up);
      return found;
    }

    sibling(at, step) {
      const parent = this.data.parent[at];
      if (parent < 0) return at;
      const list = this.children[parent];
      return list[list.indexOf(at) + step] ?? at;
    }

    lines(at) {
      const overall = this.total(0);
      const side = this.data.side;
      const result = [this.name(at), `${side} total ${time(this.total(at))}, ${share(this.total(at), overall)} of total`];
      if (this.data.self[at]) result.push(`${side} self ${time(this.data.self[at])}`);
      if (this.data.calls[at]) {
        result.push(`${this.data.calls[at].toLocaleString("en-US")} ${this.data.calls[at] === 1 ? "call" : "calls"}`);
      }
      return result;
    }

    /* Nodes whose name contains a text, and the total time of the outermost ones. */
    search(text) {
      const wanted = text.trim().toLowerCase();
      const found = new Set();
      let sum = 0;
      if (!wanted) return { found, sum };
      const codes = new Set();
      this.data.names.forEach((name, code) => { if (name.toLowerCase().includes(wanted)) codes.add(code); });
      for (let at = 0; at < this.size; at += 1) {
        if (!codes.has(this.data.name[at])) continue;
        if (!this.ancestors(at).some((up) => found.has(up))) sum += this.total(at);
        found.add(at);
      }
      return { found, sum };
    }
  }

  window.tracekit.flameTree = { Tree, time, share };
})();
