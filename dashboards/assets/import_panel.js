/* Import progress panel. Names are untrusted and only ever set as text. */
"use strict";
window.tracekit = window.tracekit || {};
(function () {
  const POLL_MS = 400;
  const OVER = ["done", "failed", "cancelled"];
  const jobs = new Map();
  let polling = null;
  let made = 0;

  function element(tag, className, text) {
    const node = document.createElement(tag);
    node.className = className;
    if (text !== undefined) { node.textContent = text; }
    return node;
  }

  function button(text, label, act) {
    const node = element("button", "tk-button", text);
    node.type = "button";
    node.setAttribute("aria-label", label);
    node.addEventListener("click", act);
    return node;
  }

  function share(job) {
    const { phase, received, read, size } = job.state;
    if (phase === "receiving") { return job.bytes ? received / job.bytes : null; }
    return phase === "importing" && size && read < size ? read / size : null;
  }

  function statusText(job) {
    const { phase, runs, warnings } = job.state;
    const part = share(job);
    const percent = part === null ? "" : ` ${Math.floor(100 * part)}%`;
    if (phase === "receiving") { return `uploading${percent}`; }
    if (phase === "waiting") { return "queued"; }
    if (phase === "importing") { return job.state.read && !percent ? "writing the run" : `reading${percent}`; }
    if (phase === "done") {
      const warningText = warnings ? `, ${warnings} warning${warnings > 1 ? "s" : ""}` : "";
      return `imported${runs.length > 1 ? ` ${runs.length} runs` : ""}${warningText}`;
    }
    return phase === "cancelled" ? "cancelled" : "failed";
  }

  function details(job) {
    const shown = [];
    for (const run of job.state.runs.slice(0, 5)) {
      const link = element("a", "tk-go tk-link tk-import-run", run);
      link.href = `/overview?run=${encodeURIComponent(run)}`;
      link.addEventListener("click", () => { if (job.state.runs.length === 1) { close(job); } });
      shown.push(link);
    }
    for (const [message, hint] of job.state.errors.slice(0, 5)) {
      shown.push(element("p", "tk-import-error", message));
      if (hint) { shown.push(element("p", "tk-import-hint", hint)); }
    }
    return shown;
  }

  function bar(job) {
    const over = OVER.includes(job.state.phase);
    const node = element("progress", "tk-import-bar");
    node.hidden = over;
    const part = share(job);
    if (part !== null) { node.value = part; }
    node.setAttribute("aria-label", `Import of ${job.name}`);
    return node;
  }

  function draw(job) {
    const over = OVER.includes(job.state.phase);
    const head = element("div", "tk-import-head");
    const name = element("strong", "tk-import-name", job.name);
    name.title = job.name;
    const end = over ? button("×", `Close: ${job.name}`, () => close(job)) : null;
    head.append(name, element("span", "tk-import-status", statusText(job)));
    head.append(end || button("Cancel", `Cancel: ${job.name}`, () => cancel(job)));
    const focused = job.row.contains(document.activeElement);
    job.row.dataset.phase = job.state.phase;
    job.row.replaceChildren(head, bar(job), ...details(job));
    if (focused) { job.row.querySelector("button").focus(); }
  }

  function update(job, state) {
    const before = job.state.phase;
    const changed = JSON.stringify(state) !== JSON.stringify(job.state);
    job.state = state;
    if (changed) { draw(job); }
    if (before !== state.phase && state.runs.length) {
      window.dash_clientside.set_props("tick", { n_intervals: Date.now() }); // refresh run lists now
      if (job.own && state.phase === "done") { open(job); }
    }
    if (!OVER.includes(state.phase) && state.phase !== "receiving") { poll(); }
  }

  /* Show the imported run, unless the user has gone elsewhere since the import began. */
  function open(job) {
    const link = job.row.querySelector("a.tk-import-run");
    if (job.state.runs.length === 1 && job.began === window.location.href) { link.click(); }
  }

  function close(job) {
    jobs.delete(job.key);
    job.row.remove();
    if (job.state.id) { window.tracekit.ask(`/import/${job.state.id}`, { method: "DELETE" }).catch(() => null); }
  }

  function cancel(job) {
    job.stop.abort();
    update(job, { ...job.state, phase: "cancelled" });
    if (job.state.id) { window.tracekit.ask(`/import/${job.state.id}`, { method: "DELETE" }).catch(() => null); }
  }

  async function refresh() {
    polling = null;
    const states = await window.tracekit.ask("/import").catch(() => []);
    for (const state of states) {
      const job = Array.from(jobs.values()).find((one) => one.state.id === state.id);
      if (!job && OVER.includes(state.phase)) { continue; } // finished before this page was loaded
      const known = job || add([{ name: state.name, size: 0 }], state);
      if (known.state.phase !== "cancelled" && state.phase !== "receiving") { update(known, state); }
    }
    if (Array.from(jobs.values()).some((one) => ["waiting", "importing"].includes(one.state.phase))) { poll(); }
  }

  function poll() {
    polling = polling || window.setTimeout(refresh, POLL_MS);
  }

  function add(files, state) {
    const more = files.length > 1 ? ` and ${files.length - 1} more` : "";
    const job = {
      key: made += 1,
      name: files[0].name + more,
      bytes: files.reduce((sum, file) => sum + file.size, 0),
      row: element("div", "tk-import"),
      stop: new AbortController(),
      state: state || { id: "", phase: "receiving", received: 0, read: 0, size: 0, runs: [], warnings: 0, errors: [] },
    };
    jobs.set(job.key, job);
    document.getElementById("imports").append(job.row);
    draw(job);
    return job;
  }

  function begin(files) {
    const job = Object.assign(add(files), { own: true, began: window.location.href });
    return {
      signal: job.stop.signal,
      sent: (state) => { if (job.state.phase !== "cancelled") { update(job, state); } },
      failed: (error) => {
        if (job.state.phase === "cancelled") { return; }
        update(job, { ...job.state, phase: "failed", errors: [[error.message, ""]] });
      },
    };
  }

  /* Show imports started by another page or before a reload. */
  function resume() {
    if (document.getElementById("imports")) { refresh(); } else { window.setTimeout(resume, POLL_MS); }
  }

  window.tracekit.imports = { begin };
  resume();
})();
