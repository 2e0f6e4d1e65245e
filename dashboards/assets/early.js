/* Set the stored theme, or the system's, before first paint, and name it to the server, which draws the next page with it; run the scripts in
   their order while the server computes the page, and begin once both are there. */
"use strict";
window.tracekit = window.tracekit || {};
(function () {
  window.tracekit.nameTheme = (theme) => { document.cookie = `tracekit_theme=${theme}; path=/; SameSite=Strict`; };
  let chosen = null;
  try {
    chosen = JSON.parse(window.localStorage.getItem("theme-chosen"));
    const scheme = chosen === "dark" || chosen === "light" ? chosen : "auto";
    window.localStorage.setItem("mantine-color-scheme-value", scheme);
  } catch (_) { /* storage is unavailable: use the system's */ }
  const system = window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const theme = chosen === "dark" || chosen === "light" ? chosen : system;
  document.documentElement.setAttribute("data-mantine-color-scheme", theme);
  window.tracekit.nameTheme(theme);

  const { content } = document.getElementById("scripts");
  const scripts = [...content.querySelectorAll("script")];
  let missing = scripts.length + 1;
  window.tracekitArrived = () => { missing -= 1; if (!missing) { window.tracekit.begin(); } };
  for (const { src } of scripts) {
    const script = document.createElement("script");
    document.head.append(Object.assign(script, { src, async: false, fetchPriority: "high", onload: window.tracekitArrived }));
  }
  document.head.append(...content.querySelectorAll("link"));
})();
