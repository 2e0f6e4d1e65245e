/* PNG and SVG download buttons of charts. */
(() => {
  "use strict";

  document.addEventListener("click", (event) => {
    const button = event.target.closest && event.target.closest(".tk-picture button");
    const plot = button && button.closest(".tk-chart").querySelector(".js-plotly-plot");
    if (!plot || !window.Plotly) {
      return;
    }
    const { format, name } = button.dataset;
    const layout = { ...plot.layout, paper_bgcolor: getComputedStyle(document.body).backgroundColor };
    const figure = { data: plot.data, layout, config: { staticPlot: true } };
    const { clientWidth: width, clientHeight: height } = plot;
    window.Plotly.downloadImage(figure, { format, filename: name, width, height, scale: format === "png" ? 2 : 1 });
  });
})();
