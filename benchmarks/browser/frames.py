"""Measure frames of the timeline while it is panned and zoomed.

    python -m benchmarks.browser.frames [--intervals 3000000] [--ranks 1 8] [--seconds 60] [--trace FILE]

`tracekit dashboard` serves a synthetic run in its own process. In headless Chromium, a wheel event arrives
before every frame, as from a user who never rests: zoom in, pan, zoom out, at random places. A frame is the
time from one animation frame to the next. Times of the main thread and of the server are CPU times, which
other programs affect less than the wall clock. `--trace` writes a trace for chrome://tracing.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from bisect import bisect_left
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from playwright.sync_api import sync_playwright

from benchmarks.browser.chromium import chromium, report
from benchmarks.dashboard import Measure, serving, timeline
from benchmarks.timeline import synthetic
from tracekit.runs.store import Store

if TYPE_CHECKING:
    import psutil
    from playwright.sync_api import Browser, CDPSession, Page

_CATEGORIES = ["devtools.timeline", "disabled-by-default-devtools.timeline"]
LIMIT_MS = 34.0
"""Most milliseconds of the 99th percentile of frames."""
_DRIVE = """async (seconds) => {
  const canvas = document.getElementById("timeline-canvas");
  const box = canvas.getBoundingClientRect();
  let state = 7;
  const random = () => (state = (state * 48271) % 2147483647) / 2147483647;
  const long = [];
  const watch = new PerformanceObserver((list) => long.push(...list.getEntries().map((one) => one.duration)));
  watch.observe({ type: "longtask" });
  const common = { bubbles: true, cancelable: true };
  const turned = (more) => canvas.dispatchEvent(new WheelEvent("wheel", { ...common, ...more }));
  const at = (x, y) => ({ clientX: box.left + x * box.width, clientY: box.top + y * box.height });
  const range = () => canvas.dataset.range.split("-").map(Number);
  let turn = null;
  const next = () => {
    const [from, to] = range();
    const kinds = to - from < 50000 ? ["out"] : ["in", "in", "out", "pan", "pan"];
    const kind = kinds[Math.floor(random() * kinds.length)];
    const [x, y, by] = [0.1 + 0.8 * random(), 0.2 + 0.6 * random(), (random() - 0.5) * 40];
    turn = { kind, x, y, by, left: 20 + Math.floor(random() * 50) };
  };
  const act = () => {
    if (!turn || !turn.left) next();
    turn.left -= 1;
    if (turn.kind === "pan") turned({ ...at(turn.x, turn.y), deltaX: turn.by, deltaY: 0 });
    else turned({ ...at(turn.x, turn.y), deltaX: 0, deltaY: (turn.kind === "in" ? -1 : 1) * 60 });
  };
  performance.clearResourceTimings();
  performance.setResourceTimingBufferSize(100000);
  const frames = [];
  const unsettled = [];
  const end = performance.now() + seconds * 1000;
  await new Promise((done) => {
    let before = performance.now();
    const frame = (now) => {
      frames.push(now - before);
      unsettled.push(canvas.dataset.settled !== "true");
      before = now;
      if (now > end) { done(); return; }
      act();
      window.requestAnimationFrame(frame);
    };
    window.requestAnimationFrame(frame);
  });
  watch.disconnect();
  const asked = performance.getEntriesByType("resource").filter((one) => one.name.includes("/timeline/"));
  const draws = asked.filter((one) => one.name.includes("/draw") && one.responseEnd > 0);
  return { frames: frames.slice(1), unsettled: unsettled.filter(Boolean).length, long, requests: asked.length,
           draws: draws.length, kb: draws.map((one) => one.encodedBodySize / 1e3) };
}"""


def drive(
    browser: Browser, page: Page, server: psutil.Process, seconds: float, trace: Path | None = None
) -> list[Measure]:
    """Pan and zoom a timeline; gives the frames, and what they cost.

    Args:
        browser: Chromium.
        page: A tab that shows a timeline.
        server: The process that serves it.
        seconds: How long.
        trace: Where to write a trace of Chromium; None for none.
    """
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.evaluate(_DRIVE, min(5.0, seconds))  # compiles, and fills what is kept of answers
    browser.start_tracing(page=page, categories=_CATEGORIES)
    before, served = _thread(session), _cpu(server)
    found: dict[str, Any] = page.evaluate(_DRIVE, seconds)
    after, server_s = _thread(session), _cpu(server) - served
    traced = browser.stop_tracing()
    if trace:
        trace.write_bytes(traced)
    busy = frame_cpu_ms(json.loads(traced)["traceEvents"])
    frames = np.array(found["frames"])
    spent = {name: (after[name] - before[name]) * 1e3 / len(frames) for name in after}
    draws = max(found["draws"], 1)
    return [
        Measure("frame, median", float(np.median(frames)), "ms"),
        Measure("frame, p95", float(np.percentile(frames, 95)), "ms"),
        Measure("frame, p99", float(np.percentile(frames, 99)), "ms", LIMIT_MS),
        Measure("frame, longest", float(frames.max()), "ms"),
        Measure("frames", len(frames), ""),
        Measure("frames over 34 ms", int((frames > LIMIT_MS).sum()), ""),
        Measure("frames painted with coarse data", found["unsettled"] / len(frames), "of all"),
        Measure("long tasks (over 50 ms)", len(found["long"]), ""),
        Measure("main thread, CPU per frame", spent["TaskDuration"], "ms"),
        Measure("  p99 of the frames", float(np.percentile(busy, 99)), "ms"),
        Measure("  of which scripts", spent["ScriptDuration"], "ms"),
        Measure("  of which layout and style", spent["LayoutDuration"] + spent["RecalcStyleDuration"], "ms"),
        Measure("drawing requests", found["draws"], ""),
        Measure("  server CPU per request", server_s * 1e3 / draws, "ms"),
        Measure("  median size", float(np.median(found["kb"] or [0])), "kB"),
    ]


def frame_cpu_ms(events: list[dict[str, Any]]) -> list[float]:
    """CPU milliseconds of the busiest renderer's main thread for each frame, from a trace of Chromium.

    A frame ends with its commit; tasks between two commits, such as timers, belong to the later one.
    """
    mains = {
        (one["pid"], one["tid"])
        for one in events
        if one["name"] == "thread_name" and one["args"]["name"] == "CrRendererMain"
    }
    tasks = [one for one in events if one.get("ph") == "X" and (one["pid"], one["tid"]) in mains]
    of = {
        main: sum(one.get("tdur", 0) for one in tasks if (one["pid"], one["tid"]) == main) for main in mains
    }
    busiest = max(of, key=lambda main: of[main])
    own = [one for one in tasks if (one["pid"], one["tid"]) == busiest]
    ends = sorted(one["ts"] + one["dur"] for one in own if one["name"] == "Commit")
    spent = np.zeros(len(ends) + 1)
    for one in own:
        if one["name"] == "RunTask":
            spent[bisect_left(ends, one["ts"])] += one.get("tdur", 0) / 1e3
    return list(map(float, spent[1:-1]))  # without the first, in which the driver starts


def _thread(session: CDPSession) -> dict[str, float]:
    """CPU seconds of the tab's main thread so far, by what it did."""
    names = ("TaskDuration", "ScriptDuration", "LayoutDuration", "RecalcStyleDuration")
    metrics = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    return {name: float(metrics[name]) for name in names}


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def measured(browser: Browser, folder: Path, options: argparse.Namespace, ranks: int) -> list[Measure]:
    """Measures of a run of so many ranks."""
    store = folder / f"ranks-{ranks}"
    if not store.exists():
        synthetic(Store(store), options.intervals, ranks=ranks)
    with serving(store) as (server, address):
        page, _ = timeline(browser, address)
        found = drive(browser, page, server, options.seconds, options.trace)
        page.close()
    return found


def main() -> None:
    """Measure and print; exit with 1 where a limit is passed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--intervals", type=int, default=3_000_000)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--trace", type=Path, help="write a trace of Chromium to this file")
    parser.add_argument("--folder", type=Path, help="keep the synthetic runs here, and use those of before")
    options = parser.parse_args()
    over = 0
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        browser = chromium(playwright)
        for ranks in options.ranks:
            found = measured(browser, options.folder or Path(name), options, ranks)
            print(f"\n{options.intervals:,} intervals, ranks: {ranks}, {options.seconds:g} s of pan and zoom")
            over |= report(found)
        browser.close()
    raise SystemExit(over)


if __name__ == "__main__":
    main()
