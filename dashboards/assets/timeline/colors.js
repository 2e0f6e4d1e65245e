/* Colours and patterns of categories, read from the style sheet of the current theme. */
"use strict";
window.tracekit = window.tracekit || {};
window.tracekit.timeline = window.tracekit.timeline || {};
(function (tl) {
  const TILE = 8;
  const STEPS = 60;
  const QUERY = 61;
  Object.assign(tl, { STEPS, QUERY });
  const HATCHES = {
    "idle: launch-bound": [[0, 8, 8, 0]],
    "idle: synchronization": [[0, 0, 8, 8]],
    "idle: data loading": [[0, 8, 8, 0], [0, 0, 8, 8]],
    "idle: between kernels": [[4, 0, 4, 3]],
    "idle: stream dependency": [[4, 0, 4, 8]],
    "idle: profiler overhead": [[0, 4, 8, 4]],
    "idle: unknown cause": [[0, 4, 4, 0]],
    "idle: CPU busy outside launches": [[0, 8, 8, 0], [4, 0, 4, 8]],
    "idle: slow runtime calls": [[0, 8, 8, 0], [0, 4, 8, 4]],
    "idle: first calls of ops": [[0, 6, 4, 2], [4, 2, 8, 6]],
    "idle: stalls of the CPU": [[0, 4, 8, 4], [4, 0, 4, 8]],
    "idle: late submission": [[4, 0, 4, 8], [0, 0, 8, 8]],
    idle: [[0, 4, 4, 0]],
    sync: [[0, 0, 8, 8]],
    overhead: [[0, 4, 8, 4]],
  };
  const slug = (name) => name.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/-$/, "");

  function luminance(color) {
    const parts = [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16) / 255);
    const linear = parts.map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  }

  /** Text color on a bar: black or white, whichever has more contrast. */
  const inkOn = (color) => ((luminance(color) + 0.05) ** 2 > 1.05 * 0.05 ? "#10131a" : "#ffffff");

  function hatch(color, back, strokes, ratio) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = TILE * ratio;
    const pen = tile.getContext("2d");
    pen.scale(ratio, ratio);
    pen.fillStyle = back;
    pen.fillRect(0, 0, TILE, TILE);
    pen.strokeStyle = color;
    pen.lineWidth = 1.3;
    pen.beginPath();
    for (const [x0, y0, x1, y1] of strokes) {
      for (const [dx, dy] of [[0, 0], [TILE, 0], [-TILE, 0], [0, TILE], [0, -TILE]]) {
        pen.moveTo(x0 + dx, y0 + dy);
        pen.lineTo(x1 + dx, y1 + dy);
      }
    }
    pen.stroke();
    return tile;
  }

  tl.Colors = class {
    constructor(element, categories) {
      this.element = element;
      this.categories = categories;
      this.read();
    }

    /** Read the colors, also after a change of theme or screen. */
    read() {
      const style = getComputedStyle(this.element);
      const of = (name) => style.getPropertyValue(`--tkl-${name}`).trim();
      this.ink = of("ink");
      this.dim = of("dim");
      this.line = of("line");
      this.back = of("back");
      this.band = of("band");
      this.accent = of("accent");
      this.heading = of("heading");
      this.shade = of("shade");
      this.memory = of("memory");
      this.font = `11px ${style.fontFamily}`;
      this.ratio = Math.min(3, window.devicePixelRatio || 1);
      const pen = document.createElement("canvas").getContext("2d");
      this.fills = [];
      this.fills[STEPS] = { name: "step", color: of("step"), fill: of("step"), hatched: false, ink: inkOn(of("step")) };
      this.fills[QUERY] = { name: "query", color: of("memory"), fill: of("memory"), hatched: false, ink: inkOn(of("memory")) };
      this.names = [];
      for (const { id, name } of this.categories) {
        const color = of(slug(name)) || of("other-kernel");
        const strokes = HATCHES[name];
        const tile = strokes && hatch(color, of("hatched"), strokes, this.ratio);
        const fill = tile ? pen.createPattern(tile, "repeat") : color;
        if (tile) fill.setTransform(new DOMMatrix().scale(1 / this.ratio));
        this.names[id] = name;
        this.fills[id] = { name, color, fill, hatched: Boolean(strokes), ink: tile ? this.ink : inkOn(color), tile, url: tile && `url(${tile.toDataURL()})` };
      }
    }

    of(category) { return this.fills[category] || this.fills[0]; }

    /** Legend swatch of a category. */
    swatch(category) {
      const { color, tile, url } = this.of(category);
      const square = tl.el("span", { class: "tkl-swatch", "aria-hidden": "true" });
      square.style.backgroundColor = tile ? "transparent" : color;
      if (tile) {
        square.style.backgroundImage = url;
        square.style.backgroundSize = `${TILE}px ${TILE}px`;
        square.style.borderColor = color;
      }
      return square;
    }
  };
})(window.tracekit.timeline);
