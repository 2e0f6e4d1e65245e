/* Drawing of a flame graph on a canvas, in the colours of the theme. */
"use strict";
(function () {
  window.tracekit = window.tracekit || {};
  const ROW = 22;
  const HUES = ["blue", "teal", "orange", "grape", "cyan", "lime", "pink", "indigo"];
  const FONT = "12px system-ui, sans-serif";

  function colours(dark) {
    const style = getComputedStyle(document.body);
    const read = (name) => style.getPropertyValue(name).trim();
    return {
      body: read("--mantine-color-body") || (dark ? "#242424" : "#fff"),
      text: read("--mantine-color-text") || (dark ? "#c9c9c9" : "#000"),
      edge: read("--mantine-primary-color-filled") || "#4263eb",
      fills: HUES.map((hue) => read(`--mantine-color-${hue}-${dark ? 9 : 2}`) || "#888"),
      faded: read(`--mantine-color-${dark ? "dark-5" : "gray-2"}`) || "#ddd",
      alpha: dark ? 0.6 : 1,
    };
  }

  /* One name keeps one hue wherever it stands. */
  function hue(name) {
    let sum = 7;
    for (let at = 0; at < name.length; at += 1) sum = (sum * 31 + name.charCodeAt(at)) >>> 0;
    return sum % HUES.length;
  }

  function fitted(pen, text, width) {
    if (width < 24) return "";
    if (pen.measureText(text).width <= width) return text;
    const bare = text.slice(0, 300).replace(/^(?:autograd::engine::evaluate_function: |aten::)/, "");
    if (pen.measureText(bare).width <= width) return bare;
    for (let letters = Math.min(bare.length, Math.ceil(width / 5)); letters >= 3; letters -= 1) {
      const head = Math.ceil(letters / 2);
      const cut = `${bare.slice(0, head)}…${bare.slice(bare.length - (letters - head))}`;
      if (pen.measureText(cut).width <= width) return cut;
    }
    return "";
  }

  /* Boxes of what is visible: the nodes around the zoomed one over the whole width, and all below it. */
  function boxes(tree, zoomed, width) {
    const found = tree.around(zoomed).map((at) => ({ at, x: 0, w: width, y: tree.depth[at] * ROW, over: true }));
    const scale = width / Math.max(1, tree.total(zoomed));
    const waiting = [zoomed];
    while (waiting.length) {
      const at = waiting.pop();
      const w = tree.total(at) * scale;
      if (w < 0.5) continue;
      found.push({ at, x: (tree.start[at] - tree.start[zoomed]) * scale, w, y: tree.depth[at] * ROW, over: false });
      for (const child of tree.children[at]) waiting.push(child);
    }
    return found;
  }

  function draw(canvas, tree, state) {
    const ratio = window.devicePixelRatio || 1;
    const width = canvas.parentElement.clientWidth;
    const found = boxes(tree, state.zoomed, width);
    const height = (1 + found.reduce((most, box) => Math.max(most, box.y), 0) / ROW) * ROW;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.font = FONT;
    pen.textBaseline = "middle";
    const shade = colours(state.dark);
    pen.fillStyle = shade.body;
    pen.fillRect(0, 0, width, height);
    for (const box of found) bar(pen, tree, box, state, shade);
    return found;
  }

  function bar(pen, tree, box, state, shade) {
    const name = tree.name(box.at);
    const dimmed = state.found.size > 0 && !state.found.has(box.at);
    pen.globalAlpha = box.over ? 0.45 * shade.alpha : shade.alpha;
    pen.fillStyle = dimmed || box.at === 0 ? shade.faded : shade.fills[hue(name)];
    pen.fillRect(box.x, box.y, Math.max(0.5, box.w - 1), ROW - 1);
    pen.globalAlpha = 1;
    if (box.at === state.current || state.found.has(box.at)) outline(pen, box, box.at === state.current, shade);
    const text = fitted(pen, name, box.w - 10);
    if (!text) return;
    pen.fillStyle = shade.text;
    pen.fillText(text, box.x + 5, box.y + ROW / 2);
  }

  function outline(pen, box, strong, shade) {
    pen.strokeStyle = strong ? shade.edge : shade.text;
    pen.lineWidth = strong ? 2 : 1;
    pen.strokeRect(box.x + 1, box.y + 1, Math.max(1, box.w - 3), ROW - 3);
  }

  window.tracekit.flameDraw = { draw };
})();
