/* Charts: the server's picture until someone zooms or saves, else Plotly once near the window; tooltips of pictures; downloads. */
"use strict";
window.tracekit = window.tracekit || {};
(function () {
  /* Runs the generators, compiled for old browsers, with which Dash loads Plotly: they catch nothing. */
  function wrap(step) {
    const state = { prev: 0, next: 0, stop: () => { state.done = true; } };
    const next = () => ({ value: step(state), done: Boolean(state.done) });
    return { next, throw: (error) => { throw error; } };
  }
  window.regeneratorRuntime = { mark: (generator) => generator, wrap };

  const BEGIN = "tracekit-plot";
  const CARTESIAN = "/bundle/plotly-cartesian-4.1.1.min.js";
  const CARTESIAN_TYPES = new Set(["bar", "heatmap", "scatter"]);
  const SAVED_MS = 15000;

  const NARROW_PX = 480;
  const NAME_PX = 18;
  const CELL_NAME_CHARS = 16;
  const FOOT_CHARS = 30;

  const cut = (text) => (text.length > CELL_NAME_CHARS ? `${text.slice(0, 7)}…${text.slice(-8)}` : text);

  /* An axis with room for the texts behind bars, which take more of a narrow one. */
  function widened(xaxis, data) {
    if (!xaxis || !xaxis.range || !data.some(({ textposition }) => textposition === "outside")) { return xaxis; }
    const [low, high] = xaxis.range;
    const room = 0.2 * (high - low);
    return { ...xaxis, range: [low < 0 ? low - room : low, high + room] };
  }

  /* An axis with as many of its names as fit below a narrow chart. */
  function thinned(xaxis) {
    const names = xaxis.ticktext;
    if (!names) { return xaxis; }
    const every = Math.ceil((names.length * (2 + Math.max(...names.map((name) => name.length)))) / FOOT_CHARS);
    const kept = (list) => list.filter((_, place) => place % every === 0);
    return { ...xaxis, ticktext: kept(names), tickvals: kept(xaxis.tickvals) };
  }

  /* A heatmap with its scale above instead of beside it, and without values in cells, which would be too small to read. */
  function barAbove(trace) {
    if (trace.type !== "heatmap") { return trace; }
    const title = { ...trace.colorbar.title, side: "top" };
    return { ...trace, xgap: 0, texttemplate: "", colorbar: { ...trace.colorbar, title, orientation: "h", y: 1, yanchor: "bottom" } };
  }

  /* A figure for a phone, where names beside the rows would take half of the width: those of bars are above them, those of cells are cut. */
  function narrowed({ figure, style, ...graph }) {
    const { data, layout } = figure;
    const names = layout.yaxis && layout.yaxis.ticktext;
    if (!names) { return { figure, style, ...graph }; }
    if (!data.some(({ orientation }) => orientation === "h")) {
      const yaxis = { ...layout.yaxis, ticktext: names.map(cut) };
      return { figure: { data: data.map(barAbove), layout: { ...layout, xaxis: thinned(layout.xaxis), yaxis } }, style, ...graph };
    }
    const height = layout.height + NAME_PX * names.length;
    const margin = { t: 16, b: 36, ...layout.margin, l: 8, r: 8 };
    const row = (height - 110) / names.length;
    const yaxis = { ...layout.yaxis, ticklabelposition: "inside", ticklabelshift: Math.round(row / 2 - 7), tickfont: { color: layout.font.color }, automargin: false };
    const gap = Math.min(0.7, (NAME_PX + 12) / row);
    return { figure: { data, layout: { ...layout, bargap: gap, height, margin, xaxis: widened(layout.xaxis, data), yaxis } }, style: { ...style, height }, ...graph };
  }

  const scripts = new Map();

  function load(address) {
    if (!scripts.has(address)) {
      scripts.set(address, new Promise((resolve, reject) => {
        const script = Object.assign(document.createElement("script"), { src: address, onload: resolve });
        script.onerror = () => { scripts.delete(address); reject(new Error(`${address} cannot be loaded`)); };
        document.head.append(script);
      }));
    }
    return scripts.get(address);
  }

  /* The script that draws a figure: the third of Plotly for bars, lines, points and heatmaps, else all of it. */
  function scriptOf({ data }) {
    const isCartesian = data.every(({ type }) => CARTESIAN_TYPES.has(type));
    return isCartesian && !scripts.has(window._dashPlotlyJSURL) ? CARTESIAN : window._dashPlotlyJSURL;
  }

  window.tracekit.Chart = ({ picture, label, ...graph }) => {
    const { createElement, useEffect, useRef, useState } = window.React;
    const [isWanted, want] = useState(false);
    const [loaded, setLoaded] = useState("");
    const place = useRef(null);
    const script = scriptOf(graph.figure);
    const plots = isWanted && loaded === script;
    useEffect(() => {
      if (isWanted) { load(script).then(() => setLoaded(script), () => want(false)); } // to be wanted again
    }, [isWanted, script]);
    useEffect(() => {
      const node = place.current;
      if (!node) { return undefined; }
      const begin = () => want(true);
      node.addEventListener(BEGIN, begin);
      const stop = picture ? () => {} : window.tracekit.whenNear(node, begin);
      return () => { stop(); node.removeEventListener(BEGIN, begin); };
    }, [plots, !picture]);
    if (plots) {
      const isNarrow = document.documentElement.clientWidth <= NARROW_PX;
      return createElement(window.dash_core_components.Graph, { key: "plot", ...(isNarrow ? narrowed(graph) : graph) });
    }
    if (!picture) { return createElement("div", { key: "later", ref: place, className: "tk-figure tk-later" }); }
    const zoom = { type: "button", className: "tk-zoom", "aria-label": `Zoom: ${label}`, onClick: () => want(true) };
    return createElement(
      "div",
      { key: "picture", ref: place, className: "tk-figure" },
      createElement("div", { dangerouslySetInnerHTML: { __html: picture } }), // whose text the server has escaped
      createElement("button", zoom, "Zoom"),
    );
  };

  /* The Plotly chart of a figure, which is drawn if it is not yet; null after a while. */
  async function plotOf(chart) {
    chart.querySelector(".tk-figure")?.dispatchEvent(new CustomEvent(BEGIN));
    const latest = performance.now() + SAVED_MS;
    const drawn = ".js-plotly-plot:not(.dash-graph--pending):has(.main-svg)";
    while (!chart.querySelector(drawn) && performance.now() < latest) {
      await new Promise((resolve) => { setTimeout(resolve, 50); });
    }
    return chart.querySelector(drawn);
  }

  document.addEventListener("click", async (event) => {
    const button = event.target.closest && event.target.closest(".tk-picture button");
    const plot = button && await plotOf(button.closest(".tk-chart"));
    if (!plot) {
      return;
    }
    const { format, name } = button.dataset;
    const layout = { ...plot.layout, paper_bgcolor: getComputedStyle(document.body).backgroundColor };
    const figure = { data: plot.data, layout, config: { staticPlot: true } };
    const { clientWidth: width, clientHeight: height } = plot;
    window.Plotly.downloadImage(figure, { format, filename: name, width, height, scale: format === "png" ? 2 : 1 });
  });

  document.addEventListener("dblclick", (event) => {
    const figure = event.target.closest && event.target.closest(".tk-plot") && event.target.closest(".tk-figure");
    if (figure) { figure.dispatchEvent(new CustomEvent(BEGIN)); }
  });

  const tip = document.createElement("div");
  tip.className = "tk-tip";

  /* Show the text of the bar or point at the pointer, beside it and inside of the window. */
  document.addEventListener("pointermove", ({ target, clientX, clientY }) => {
    const over = target.closest && target.closest("[data-tip]");
    if (!over) { tip.remove(); return; }
    if (tip.textContent !== over.dataset.tip) { tip.textContent = over.dataset.tip; }
    if (!tip.isConnected) { document.body.append(tip); }
    const { clientWidth: width, clientHeight: height } = document.documentElement;
    tip.style.left = `${Math.max(4, Math.min(clientX + 12, width - tip.offsetWidth - 4))}px`;
    tip.style.top = `${clientY + 16 + tip.offsetHeight < height ? clientY + 16 : clientY - tip.offsetHeight - 8}px`;
  });
  document.addEventListener("scroll", () => tip.remove(), true);
})();
