/* The lanes of a run, and everything again once the server's answers have changed. */
"use strict";
window.tracekit = window.tracekit || {};
window.tracekit.timeline = window.tracekit.timeline || {};
(function (tl) {
  const CAUSES_MS = 1500;

  tl.Loading = class {
    constructor(app) {
      this.app = app;
    }

    ask(words) {
      const { wire, source, ending } = this.app;
      return wire.json("lanes", { rank: source.rank, device: source.device, ...words }, ending);
    }

    take(info) {
      this.app.info = info;
      this.app.steps = info.steps.filter((step) => step.rank === info.steps[0].rank).map((step, place) => ({ ...step, place }));
    }

    /** Ask again after all times have changed; the range and the selection stay. */
    async again() {
      const { app } = this;
      const info = await this.ask().catch((error) => { if (app.alive) app.stage.trouble(error.message); });
      if (!info || !app.alive) return;
      const { whole, from, to } = app.scale;
      this.take(info);
      app.scale.min = info.start_ns;
      app.scale.max = Math.max(info.end_ns, info.start_ns + 1);
      app.scale.setRange(whole ? app.scale.min : from, whole ? app.scale.max : to);
      app.queries.refresh();
      app.notes.load();
      this.#forget();
      if (app.chosen) app.select({ ...app.chosen }, { silent: true });
    }

    /** Poll until the server has computed the causes of idle time. */
    waitForCauses() {
      const { app } = this;
      window.setTimeout(async () => {
        const info = app.alive && await this.ask({ again: Date.now() }).catch(() => null);
        if (!info || !app.alive) return;
        if (!info.causes) { this.waitForCauses(); return; }
        app.info.causes = true;
        this.#forget();
        if (app.moves.unmet) app.moves.arrive(app.moves.unmet);
      }, CAUSES_MS);
    }

    /** Forget all answers, and ask for what is shown. */
    #forget() {
      const { app } = this;
      app.data.forget();
      app.wire.rows.clear();
      app.table.requestedScope = "";
      app.heading.stale = true;
      app.changed();
    }
  };
})(window.tracekit.timeline);
