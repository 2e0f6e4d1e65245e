/* Import traces dropped anywhere on the page; folders are searched recursively. */
"use strict";
(function () {
  const TRACE = /\.(json|gz|sqlite|nsys-rep)$/i;
  let inside = 0;

  function holdsFiles(event) {
    return Boolean(event.dataTransfer) && Array.from(event.dataTransfer.types).includes("Files");
  }

  function show(on) {
    const cover = document.getElementById("drop");
    if (cover) { cover.hidden = !on; }
  }

  function entries(reader) {
    return new Promise((done, fail) => reader.readEntries(done, fail));
  }

  async function filesOf(entry) {
    if (entry.isFile) { return [await new Promise((done, fail) => entry.file(done, fail))]; }
    const reader = entry.createReader();
    const found = [];
    for (let some = await entries(reader); some.length; some = await entries(reader)) {
      for (const one of some) { found.push(...await filesOf(one)); }
    }
    return found.filter((file) => TRACE.test(file.name));
  }

  async function dropped(transfer) {
    const roots = Array.from(transfer.items).filter((item) => item.kind === "file")
      .map((item) => (item.webkitGetAsEntry ? item.webkitGetAsEntry() : null));
    const direct = Array.from(transfer.files); // read before the first await, which empties it
    if (!roots.some((entry) => entry && entry.isDirectory)) { return direct; }
    return (await Promise.all(roots.filter(Boolean).map(filesOf))).flat();
  }

  document.addEventListener("dragenter", (event) => {
    if (holdsFiles(event)) { inside += 1; show(true); }
  });
  document.addEventListener("dragleave", (event) => {
    if (holdsFiles(event)) { inside = Math.max(0, inside - 1); show(inside > 0); }
  });
  document.addEventListener("dragover", (event) => {
    if (holdsFiles(event)) { event.preventDefault(); }
  });
  document.addEventListener("drop", async (event) => {
    if (!holdsFiles(event)) { return; }
    event.preventDefault();
    inside = 0;
    show(false);
    const files = await dropped(event.dataTransfer).catch(() => []);
    if (files.length) {
      window.tracekit.send(files);
    } else {
      window.tracekit.imports.begin([{ name: "dropped files", size: 0 }])
        .failed(new Error("no traces found (.json, .json.gz, .sqlite)"));
    }
  });
})();
