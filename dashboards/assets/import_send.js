/* Upload dropped or picked traces in slices; files dropped together form one import. */
"use strict";
window.tracekit = window.tracekit || {};
(function () {
  const SLICE = 8 << 20;

  async function ask(address, options) {
    let response;
    try {
      response = await fetch(address, options);
    } catch (error) {
      if (error.name === "AbortError") { throw error; }
      throw new Error("no response: is `tracekit dashboard` still running?");
    }
    const json = (response.headers.get("Content-Type") || "").startsWith("application/json");
    const answer = json ? await response.json() : { error: `the dashboard returned status ${response.status}` };
    if (!response.ok) { throw new Error([answer.error, answer.hint].filter(Boolean).join("; ")); }
    return answer;
  }

  /* All slices with their offsets; empty files have one slice. */
  function* slices(files) {
    for (const [number, file] of files.entries()) {
      for (let start = 0; start === 0 || start < file.size; start += SLICE) {
        const last = number === files.length - 1 && start + SLICE >= file.size;
        yield { file, start, last, body: file.slice(start, start + SLICE) };
      }
    }
  }

  function named(files) {
    const names = new Map();
    return files.map((file) => {
      const seen = names.get(file.name) || 0;
      names.set(file.name, seen + 1);
      return seen ? `${seen}/${file.name}` : file.name; // the server ignores folders
    });
  }

  async function send(files) {
    const job = window.tracekit.imports.begin(files);
    const names = named(files);
    let id = "";
    try {
      for (const { file, start, last, body } of slices(files)) {
        const words = new URLSearchParams({ name: names[files.indexOf(file)], from: start, size: file.size });
        if (id) { words.set("id", id); }
        if (!last) { words.set("more", "1"); }
        const state = await ask(`/import?${words}`, { method: "POST", body, signal: job.signal });
        id = state.id;
        job.sent(state);
      }
    } catch (error) {
      if (id) { await ask(`/import/${id}`, { method: "DELETE" }).catch(() => null); }
      job.failed(error);
    }
  }

  async function samples() {
    const job = window.tracekit.imports.begin([{ name: "the samples", size: 0 }]);
    try {
      job.sent(await ask("/import/samples", { method: "POST" }));
    } catch (error) {
      job.failed(error);
    }
  }

  function pick() {
    const field = document.createElement("input");
    field.type = "file";
    field.multiple = true;
    field.addEventListener("change", () => { if (field.files.length) { send(Array.from(field.files)); } });
    field.click();
  }

  document.addEventListener("click", (event) => {
    if (!event.target.closest) { return; }
    if (event.target.closest(".tk-import-pick")) { pick(); }
    if (event.target.closest(".tk-import-samples")) { samples(); }
  });

  Object.assign(window.tracekit, { ask, send });
})();
