/* Notes and flags of the run: listed in the panel, marked in the ruler, and kept by the server. */
"use strict";
window.tracekit = window.tracekit || {};
window.tracekit.timeline = window.tracekit.timeline || {};
(function (tl) {
  tl.Notes = class {
    constructor(app, element) {
      Object.assign(this, { app, element, notes: [], edited: null });
      this.title = tl.el("h2", { class: "tkl-subtitle" }, "Notes");
      this.field = tl.el("textarea", { class: "tkl-input", rows: "2", maxlength: "2000", "aria-label": "Text of the note", placeholder: "Note  T", keydown: (event) => this.#key(event) });
      this.add = tl.button("Save the note for the marked range, the selection or the view; without text, a flag (Ctrl + Enter)", { click: () => this.#save() }, "Add");
      this.list = tl.el("ul", { class: "tkl-relatives" });
      element.append(this.title, this.list, this.field, this.add);
      this.load();
    }

    focus() { this.app.layout.reveal(); this.field.focus(); }

    #key(event) {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.#save();
      else if (event.key === "Escape") { this.#edit(null); this.app.parts.overlay.focus(); } else return;
      event.preventDefault();
    }

    async load() {
      const found = await this.app.wire.json("notes", {}, this.app.ending).catch(() => null);
      if (!found || !this.app.alive) return;
      this.notes = found.notes;
      this.#show();
    }

    /** What a new note is about: the marked range, else the selection, else the view. */
    #place() {
      const { brush, selected, scale } = this.app;
      if (brush) return { from_ns: brush.from, to_ns: brush.to };
      if (selected) return { from_ns: selected.start_ns, to_ns: selected.start_ns + selected.dur_ns, row: selected.info.query ? "" : `${selected.table}:${selected.row}` };
      return { from_ns: Math.floor(scale.from), to_ns: Math.ceil(scale.to) };
    }

    async #save() {
      const old = this.edited;
      const place = old ? { from_ns: old.from_ns, to_ns: old.to_ns, row: old.row } : this.#place();
      await this.#send(old ? `notes/${old.id}` : "notes", "POST", { ...place, text: this.field.value.trim() });
    }

    async #send(path, method, body) {
      try {
        await this.app.wire.send(path, method, body);
        this.#edit(null);
        await this.load();
        this.app.say(method === "DELETE" ? "Note deleted" : "Note saved");
      } catch (error) {
        this.app.say(`The note was not saved: ${error.message}`);
      }
    }

    #edit(note) {
      this.edited = note;
      this.field.value = note ? note.text : "";
      this.add.textContent = note ? "Save" : "Add";
      if (note) this.field.focus();
    }

    #show() {
      this.title.textContent = this.notes.length ? `Notes (${tl.count(this.notes.length)})` : "Notes";
      this.list.replaceChildren(...this.notes.map((note) => this.#entry(note)));
      this.app.stage.redraw();
    }

    #entry(note) {
      const text = note.text ? tl.clean(note.text) : "⚑ flag";
      const short = tl.cut(text, 40);
      return tl.el("li", { class: "tkl-note" },
        tl.el("button", { type: "button", class: "tkl-link", title: text, click: () => this.#go(note) }, tl.el("span", { class: "tkl-link-name" }, text), tl.el("span", { class: "tkl-link-time" }, tl.time(note.from_ns))),
        tl.button(`Edit ${short}`, { class: "tkl-mini", click: () => this.#edit(note) }, "✎"),
        tl.button(`Delete ${short}`, { class: "tkl-mini", click: () => this.#send(`notes/${note.id}`, "DELETE") }, "✕"));
    }

    #go(note) {
      const length = Math.max(note.to_ns - note.from_ns, 50);
      const [table, row] = note.row.split(":");
      if (note.row) this.app.select({ table, row: Number(row) }, { zoom: "near" });
      else this.app.jump(note.from_ns - length * 0.1, note.to_ns + length * 0.1);
    }

    /** Paint a flag and the extent of each note in view at the bottom of the ruler. */
    paint(pen, { scale, colors }, bottom) {
      pen.fillStyle = colors.accent;
      for (const note of this.notes) {
        const [x, end] = [scale.x(note.from_ns), scale.x(note.to_ns)];
        if (end < 0 || x > scale.width) continue;
        pen.fillRect(Math.max(0, x), bottom - 3, Math.max(1.5, Math.min(end, scale.width) - Math.max(0, x)), 2);
        if (x < 0) continue;
        pen.fillRect(x, bottom - 13, 1.5, 12);
        pen.beginPath();
        pen.moveTo(x, bottom - 14);
        pen.lineTo(x + 8, bottom - 10.5);
        pen.lineTo(x, bottom - 7);
        pen.fill();
      }
    }
  };
})(window.tracekit.timeline);
