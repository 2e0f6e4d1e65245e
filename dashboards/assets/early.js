/* Before anything is painted: the theme that was chosen, else the system's. */
"use strict";
(function () {
  let chosen = null;
  try {
    chosen = JSON.parse(window.localStorage.getItem("theme-chosen"));
    const scheme = chosen === "dark" || chosen === "light" ? chosen : "auto";
    window.localStorage.setItem("mantine-color-scheme-value", scheme);
  } catch (_) { /* without storage, the system's */ }
  const system = window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const theme = chosen === "dark" || chosen === "light" ? chosen : system;
  document.documentElement.setAttribute("data-mantine-color-scheme", theme);
})();
