/* Draw a flame graph on a canvas in the theme's colors. */
"use strict";
(function () {
  window.tracekit = window.tracekit || {};
  const ROW = 22;
  const HUES = ["blue", "teal", "orange", "grape", "cyan", "lime", "pink", "indigo"];
  const FONT = "12px system-ui, sans-serif";

  function colors(dark) {
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

  /* The hue of a name, by hash. */
  function hue(name) {
    let sum = 7;
    for (let at = 0; at < name.length; at += 1) sum = (sum * 31 + name.charCodeAt(at)) >>> 0;
    return sum % HUES.length;
  }

  function fitted(context, text, width) {
    if (width < 24) return "";
    if (context.measureText(text).width <= width) return text;
    const bare = text.slice(0, 300).replace(/^(?:autograd::engine::evaluate_function: |aten::)/, "");
    if (context.measureText(bare).width <= width) return bare;
    for (let letters = Math.min(bare.length, Math.ceil(width / 5)); letters >= 3; letters -= 1) {
      const head = Math.ceil(letters / 2);
      const cut = `${bare.slice(0, head)}…${bare.slice(bare.length - (letters - head))}`;
      if (context.measureText(cut).width <= width) return cut;
    }
    return "";
  }

  /* Boxes of the visible nodes: ancestors of the zoomed node at full width, and its descendants. */
  function boxes(tree, zoomed, width) {
    const found = tree.ancestors(zoomed).map((at) => ({ at, x: 0, w: width, y: tree.depth[at] * ROW, ancestor: true }));
    const scale = width / Math.max(1, tree.total(zoomed));
    const stack = [zoomed];
    while (stack.length) {
      const at = stack.pop();
      const w = tree.total(at) * scale;
      if (w < 0.5) continue;
      found.push({ at, x: (tree.start[at] - tree.start[zoomed]) * scale, w, y: tree.depth[at] * ROW, ancestor: false });
      for (const child of tree.children[at]) stack.push(child);
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
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.font = FONT;
    context.textBaseline = "middle";
    const shade = colors(state.dark);
    context.fillStyle = shade.body;
    context.fillRect(0, 0, width, height);
    for (const box of found) bar(context, tree, box, state, shade);
    return found;
  }

  function bar(context, tree, box, state, shade) {
    const name = tree.name(box.at);
    const dimmed = state.found.size > 0 && !state.found.has(box.at);
    context.globalAlpha = box.ancestor ? 0.45 * shade.alpha : shade.alpha;
    context.fillStyle = dimmed || box.at === 0 ? shade.faded : shade.fills[hue(name)];
    context.fillRect(box.x, box.y, Math.max(0.5, box.w - 1), ROW - 1);
    context.globalAlpha = 1;
    if (box.at === state.current || state.found.has(box.at)) outline(context, box, box.at === state.current, shade);
    const text = fitted(context, name, box.w - 10);
    if (!text) return;
    context.fillStyle = shade.text;
    context.fillText(text, box.x + 5, box.y + ROW / 2);
  }

  function outline(context, box, strong, shade) {
    context.strokeStyle = strong ? shade.edge : shade.text;
    context.lineWidth = strong ? 2 : 1;
    context.strokeRect(box.x + 1, box.y + 1, Math.max(1, box.w - 3), ROW - 3);
  }

  window.tracekit.flameDraw = { draw };
})();
