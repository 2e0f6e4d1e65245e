/* Set the stored theme, or the system's, before first paint, and name it to the server, which draws the next page with it. */
"use strict";
(function () {
  let chosen = null;
  try {
    chosen = JSON.parse(window.localStorage.getItem("theme-chosen"));
    const scheme = chosen === "dark" || chosen === "light" ? chosen : "auto";
    window.localStorage.setItem("mantine-color-scheme-value", scheme);
  } catch (_) { /* storage is unavailable: use the system's */ }
  const system = window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const theme = chosen === "dark" || chosen === "light" ? chosen : system;
  document.documentElement.setAttribute("data-mantine-color-scheme", theme);
  document.cookie = `tracekit_theme=${theme}; path=/; SameSite=Strict`;
})();
