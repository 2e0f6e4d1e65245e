"""What bounds a run: every part of a stated window, and the findings on the largest ones.

The window is that of `gpu_breakdown`: the union of the profiled steps of each device, or its capture if none
are marked, summed over devices. Its parts sum to it exactly:

* compute: a kernel other than communication runs, or an opaque graph and nothing else.
* stragglers, communication: communication runs and no other kernel; stragglers is the part before the last
  rank arrived, as far as the CPU of the waiting rank could launch earlier. The rest is host work: were the
  others in time, that rank would be as late. Of a rank alone it is the time by which collectives are longer
  than others of their kind that move at least as much.
* memory copies: a copy or memset runs and no kernel.
* idle time by cause: input (data loading), kernel launches or host work (the host launched late, because of
  its launches or of other work), synchronization, queued work, profiler (also that by which launches are
  later than in unprofiled steps, where these were timed), unknown.
* start-up: idle time in which the host loaded or compiled code or chose an algorithm, and the kernels that
  search for one. From 10% the window is what remains without it, if that is at least 10%.
* one gap without recorded work of the host, if it is most of that work: set aside from half of the rest.
* edges: gaps that `idle_gaps` sets aside at the edges of the capture and in marked warm-up, and idle time of
  the steps that it does not explain before the first work of the device or after the last. From 10% on,
  the window is the rest.

A run without device work is judged by `host_breakdown`, in the window of the thread that drives each rank.

The largest part without the edges bounds the run; kernel launches and host work count together, and the
larger of them is named. They also do where kernels run for less than half of the window, these are the next
largest part, and the host hardly waits: then it paces the run, and kernels run beside its work. If compute
bounds the run, the largest other part is the largest loss; beside another bound, a loss from 10% is said. It
cannot be told what bounds a run whose numbers are misleading, whose trace is no whole execution or has too
few events of each rank (`is_few`), or whose largest part has no known cause.

Example:
    >>> import tracekit
    >>> from tracekit.analysis.verdict import judge
    >>> judge(tracekit.open("latest")).sentence  # doctest: +SKIP
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tracekit.analysis import Analyze, Bottleneck, Result, Severity, analyze
from tracekit.analysis.device_verdict import (
    AS_LATE,
    LATE,
    LAUNCHES,
    PROFILED,
    START_UP,
    About,
    describe_devices,
    describe_few_intervals,
    name_aside,
    name_kernels,
)
from tracekit.analysis.host_verdict import describe_few_calls, describe_host, describe_samples
from tracekit.analysis.idle_causes import (
    COVERED_NS,
    HOST_LAUNCHES,
    QUEUED,
    IdleCause,
    IdleTables,
    name_host_work,
    name_latest,
)
from tracekit.analysis.savings import Ranked, Verdict, cannot_tell
from tracekit.errors import PluginError, clean
from tracekit.runs.run import Run
from tracekit.runs.text import human
from tracekit.schema import C

if TYPE_CHECKING:
    import pandas as pd


_BY_CAUSE = {
    **dict.fromkeys(HOST_LAUNCHES, Bottleneck.HOST),
    IdleCause.LAUNCH_BOUND: Bottleneck.LAUNCH,
    **dict.fromkeys(QUEUED, Bottleneck.QUEUED),
    IdleCause.DATALOAD: Bottleneck.INPUT,
    IdleCause.SYNC: Bottleneck.SYNC,
    IdleCause.PROFILER: Bottleneck.PROFILER,
    IdleCause.UNKNOWN: Bottleneck.UNKNOWN,
}
MAX_VERDICT_FINDINGS = 3
"""Maximum number of findings that carry a verdict."""
_NO_EXECUTION = {"graph_capture", "graph_kernels_missing", "step_outlives_events"}
"""Checks of `integrity` that fail where a trace is no whole execution."""
_NOT_UNDERSTOOD = "ignored_categories"
_SLOWED = "profiler_overhead"
"""The check that fails where the profiler makes short steps take far longer."""
INTEGRITY = "integrity"
INPUTS: dict[str, tuple[str, ...]] = {
    INTEGRITY: ("verdict", "checks"),
    "gpu_breakdown": ("profiled_steps", "after_warm_up", "whole"),
    "host_breakdown": ("whole", "by_name", "read_loops", "by_function", "other_threads", "thread_states"),
    "idle_gaps": ("by_cause", "by_op", "before_work", "summary", "gaps"),
    "kernels": ("families",),
    "overlap": ("profiled_steps", "whole", "collectives"),
    "ranks": ("stragglers",),
    "roofline": ("kernels", "host"),
    "steps": ("overhead",),
}
"""The analyses that a verdict follows from, with their tables."""


@dataclass
class Evidence:
    """The tables that a verdict follows from, collected as the analyses end."""

    # non-empty tables by analysis and name
    tables: dict[tuple[str, str], pd.DataFrame] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)  # analyses that have ended
    failed: dict[str, str] = field(default_factory=dict)  # messages of those that failed
    _judged: Verdict | None = None  # without findings, once all are complete

    def add(self, name: str, result: Result) -> None:
        """Add the result of an analysis; those that are not needed are ignored."""
        if name in INPUTS:
            self.done.add(name)
            if result.incomplete and not result.tables:
                self.failed[name] = (
                    clean("; ".join(result.notes).removeprefix("failed: ")) or f"{name} failed"
                )
            frames = ((table, result.tables.get(table)) for table in INPUTS[name])
            self.tables |= {
                (name, table): frame for table, frame in frames if frame is not None and len(frame)
            }

    @property
    def complete(self) -> bool:
        """Whether all analyses that are needed have ended."""
        return self.done >= set(INPUTS)

    def verdict(self, ranked: Iterable[Ranked] = ()) -> Verdict:
        """Return the verdict: what `integrity` objects to, else the largest part of the window.

        The window is that of the profiled steps, else of the capture, else the ops of the host.

        Args:
            ranked: All findings, ranked; the verdict names those on its bound.
        """
        verdict = self._judged or self._judge()
        self._judged = verdict if self.complete else None
        return replace(verdict, findings=_select_findings(verdict, list(ranked)))

    def _judge(self) -> Verdict:
        obstacle = self._obstacle()
        verdict = cannot_tell(obstacle) if obstacle else self._judge_window()
        unnamed = [name for name, message in self.failed.items() if message not in verdict.sentence]
        if unnamed:
            sentence = f"{verdict.sentence} Not included, because it failed: {', '.join(unnamed)}."
            verdict = replace(verdict, sentence=sentence)
        return verdict

    def _obstacle(self) -> str:
        """Return why there is no verdict; empty if there is one."""
        if "gpu_breakdown" in self.failed:
            return self.failed["gpu_breakdown"]
        verdict, checks = (self.tables.get((INTEGRITY, name)) for name in INPUTS[INTEGRITY])
        if verdict is None or checks is None:
            return ""
        if verdict["verdict"].iloc[0] == "misleading" and not self._is_slowed():
            return clean(str(verdict["reason"].iloc[0]).split("; ")[0])
        failed = checks[checks["level"].isin(["warn", "error"])]
        blocking = _NO_EXECUTION | (set() if ("gpu_breakdown", "whole") in self.tables else {_NOT_UNDERSTOOD})
        return clean("; ".join(map(str, failed.loc[failed["check"].isin(blocking), "detail"])))

    def _is_slowed(self) -> bool:
        """Whether nothing is wrong but that the profiler makes steps take far longer."""
        checks = self.tables.get((INTEGRITY, "checks"))
        errors = [] if checks is None else checks["check"][checks["level"] == "error"].tolist()
        return errors == [_SLOWED]

    def _name_slowdown(self) -> str:
        """Return by how much the profiler slows steps down, in words; empty if that is no error."""
        checks = self.tables.get((INTEGRITY, "checks"))
        if checks is None or not self._is_slowed():
            return ""
        detail = str(checks["detail"][checks["check"] == _SLOWED].iloc[0])
        return detail[0].upper() + detail[1:]

    def _judge_window(self) -> Verdict:
        """Return the verdict on the first window that is recorded."""
        for table, window in _WINDOWS:
            frame = self.tables.get(("gpu_breakdown", table))
            if frame is not None:
                if too_little := describe_few_intervals(frame, self.tables.get(_HOST)):
                    return cannot_tell(too_little)
                on = f" on {len(frame):,} devices" if len(frame) > 1 else ""
                lengths, edges_ns = self._lengths(frame, stepped=table == STEPPED)
                late_ns = sum(
                    ns for (bound, label), ns in lengths.items() if bound in LATE and label != AS_LATE
                )
                opaque = frame["graph_ns"].sum() > frame["active_ns"].sum()
                is_searched = "search_ns" in frame and frame["search_ns"].sum() > 0
                of = "all kernel time" if is_searched else "kernel time"  # with that of the search
                idle = IdleTables(partial(self._idle, frame))
                busiest, gap_ns, after_gap = name_host_work(idle, late_ns)
                kernels = map(self.tables.get, _KERNELS)
                named = {
                    Bottleneck.COMPUTE: "" if opaque else name_kernels(*kernels, of=of),
                    Bottleneck.COPIES: self._largest_copies(frame, stepped=table == STEPPED),
                    Bottleneck.COMMUNICATION: self._largest_collective(frame),
                    Bottleneck.STRAGGLERS: self._name_waiting(frame),
                    Bottleneck.LAUNCH: name_latest(idle, HOST_LAUNCHES, late_ns),
                    Bottleneck.SYNC: name_latest(idle, (IdleCause.SYNC,), 0),
                    Bottleneck.HOST: busiest,
                }
                edges = self._describe_edges(frame)
                waits = self._idle_sum(frame, "waits_ns") / max(int(frame["window_ns"].sum()), 1)
                lead = self._lead(frame, stepped=table == STEPPED)
                late = (waits, gap_ns, after_gap, self._idle_sum(frame, "launch_latency_ns"))
                about = About(f"{window}{on}", edges_ns, edges, named, *late, lead)
                found = describe_devices(lengths, about)
                if found is None:
                    return cannot_tell("the window has no length")
                slowed = self._name_slowdown()
                return replace(found, sentence=f"{slowed}. {found.sentence}") if slowed else found
        whole, by_name, *others = map(self.tables.get, _OF_HOST)
        if whole is None or by_name is None:
            nothing = "neither work of a device nor of the host is recorded"
            return cannot_tell(self.failed.get("host_breakdown", nothing))
        if slowed := self._name_slowdown():
            found = describe_samples(others[1], others[2], slowed)
            return found or cannot_tell(slowed[0].lower() + slowed[1:])
        few = describe_few_calls(by_name, others[1]) or "the host's activity has no length"
        found = None if few.startswith("too") else describe_host(whole, by_name, *others)
        return found or cannot_tell(few)

    def measured_window(self) -> tuple[pd.DataFrame, str] | None:
        """Return the breakdown of each device in the window that the verdict is on, and what the window is.

        It is the table of `gpu_breakdown` without the edges that the verdict sets aside, which are idle; None
        without one. `gpu_breakdown` and `idle_gaps` must have ended.
        """
        for table, window in _WINDOWS:
            frame = self.tables.get(("gpu_breakdown", table))
            if frame is None:
                continue
            edges_ns = self._edges_ns(frame, stepped=table == STEPPED)
            total_ns = int(frame["window_ns"].sum())
            aside = name_aside(int(edges_ns.sum()), total_ns, self._describe_edges(frame))
            if not aside:
                return frame, window
            cut = edges_ns.to_numpy()
            inside = frame.assign(**{name: frame[name] - cut for name in ("window_ns", "idle_ns")})
            for part in ("active", "movement", "idle"):
                lengths = inside["window_ns"].where(inside["window_ns"] > 0)
                inside[f"{part}_share"] = inside[f"{part}_ns"] / lengths
            return inside, window + aside
        return None

    def _edges_ns(self, frame: pd.DataFrame, *, stepped: bool) -> pd.Series[Any]:
        """Return the idle time of each device that is at an edge of the capture or in marked warm-up."""
        edges = frame.set_index(_PLACE)["idle_ns"]
        if ("idle_gaps", "summary") not in self.tables:
            return edges * 0
        for name, column in (("by_cause", "steps_ns" if stepped else "idle_ns"), *_AT_ENDS):
            for rows in self._idle(frame, name):
                inside = rows[column].fillna(0) - rows.get("aside_ns", 0)
                sums = inside.groupby([rows[place] for place in _PLACE]).sum()
                edges = edges - sums.reindex(edges.index, fill_value=0).astype("int64")
        return edges

    def _lengths(
        self, frame: pd.DataFrame, *, stepped: bool
    ) -> tuple[dict[tuple[Bottleneck, str], int], int]:
        """Return the parts of the window of the devices, and the length of its edges."""
        exposed = frame["communication_exposed_ns"]
        waited, late = self._waited_ns(frame, stepped=stepped)
        graph, idle = int(frame["graph_ns"].sum()), int(frame["idle_ns"].sum())
        compute = int((frame["active_ns"] - exposed).sum())
        wrong = min(int(frame["overrun_ns"].sum()), compute) if "overrun_ns" in frame else 0
        search = min(int(frame["search_ns"].sum()), compute - wrong) if "search_ns" in frame else 0
        lengths = {
            (Bottleneck.COMPUTE, "compute"): compute - wrong - search,
            START_UP: search,
            (Bottleneck.UNKNOWN, "in kernels whose recorded end is wrong"): wrong,
            (Bottleneck.COMPUTE, "opaque CUDA graphs"): graph,
            (Bottleneck.COMMUNICATION, "exposed communication"): int(exposed.sum()) - waited,
            (Bottleneck.STRAGGLERS, "waiting for the last rank"): waited - late,
            (Bottleneck.HOST, AS_LATE): late,
            (Bottleneck.COPIES, "exposed copies"): int(frame["movement_ns"].sum()),
        }
        if ("idle_gaps", "summary") not in self.tables:
            return {**lengths, (Bottleneck.UNKNOWN, IdleCause.UNKNOWN.label): idle}, 0
        causes = self._causes(frame, stepped=stepped)
        by_cause: dict[tuple[Bottleneck, str], int] = {
            (bound, cause.label): causes.get(cause, 0) for cause, bound in _BY_CAUSE.items()
        }
        by_cause[START_UP] = search + causes.get(Bottleneck.START_UP, 0)
        known_ns = by_cause[PROFILED] + by_cause[START_UP]  # which make profiled steps longer as well
        slowed_ns = self._slowed_ns(frame) - known_ns if stepped else 0
        moved_ns = min(max(0, slowed_ns), by_cause[LAUNCHES])
        by_cause[LAUNCHES] -= moved_ns
        by_cause[PROFILED] += moved_ns
        return {**lengths, **by_cause}, int(self._edges_ns(frame, stepped=stepped).sum())

    def _waited_alone_ns(self, frame: pd.DataFrame, *, stepped: bool) -> int:
        """Return for how long collectives wait exposed as a rank alone tells it."""
        alone = self._of(frame, "overlap", STEPPED if stepped else "whole")
        if "waiting_ns" not in alone:
            return 0
        waited = alone["waiting_ns"].fillna(0).groupby([alone[name] for name in _PLACE]).sum()
        exposed = frame.set_index(_PLACE)["communication_exposed_ns"]
        return int(waited.reindex(exposed.index, fill_value=0).clip(upper=exposed).sum())

    def _waited_ns(self, frame: pd.DataFrame, *, stepped: bool) -> tuple[int, int]:
        """Return for how long collectives wait exposed, and the part that hosts as late would wait anyway."""
        ranks = self._of(frame, "ranks", "stragglers")
        if "waited_ns" not in ranks:
            return self._waited_alone_ns(frame, stepped=stepped), 0
        waited = ranks["waited_ns"].fillna(0).clip(upper=frame["communication_exposed_ns"].to_numpy())
        slack = ranks.get("host_slack_ns", waited)
        late = (waited - slack.fillna(waited)).clip(lower=0)  # an unknown slack limits nothing
        return int(waited.sum()), int(late.sum())

    def _causes(self, frame: pd.DataFrame, *, stepped: bool) -> dict[str, int]:
        """Return idle time inside the window by cause, without gaps set aside, and that of start-up."""
        causes: Counter[str] = Counter()
        for name, column in (("by_cause", "steps_ns" if stepped else "idle_ns"), *_AT_ENDS):
            for rows in self._idle(frame, name):
                inside = rows[column].fillna(0) - rows["start_up_ns"] - rows.get("aside_ns", 0)
                sums = inside.groupby(rows["cause"]).sum()
                causes.update({str(cause): int(total) for cause, total in sums.items()})
                of_profiler = rows["cause"] == IdleCause.PROFILER  # which has other host work beside it
                beside = (inside - rows.get("overhead_ns", inside))[of_profiler].clip(lower=0).sum()
                causes.update({IdleCause.PROFILER: -int(beside), IdleCause.LAUNCH_BOUND: int(beside)})
                causes[Bottleneck.START_UP] += int(rows["start_up_ns"].sum())
        return causes

    def _idle(self, frame: pd.DataFrame, name: str) -> list[pd.DataFrame]:
        """Return a table of `idle_gaps` for the devices of another one, or an empty list without it.

        The table `after_work` has the tails of steps from the summary, with columns of `before_work`.
        """
        if name == "after_work":
            tails = [rows[rows["tail_ns"] > 0] for rows in self._idle(frame, "summary") if "tail_ns" in rows]
            names = {"tail_ns": C.DUR_NS, "tail_work": "op", "tail_work_ns": COVERED_NS}
            return [
                rows.rename(columns=names)[[*_PLACE, *names.values()]].assign(
                    cause=IdleCause.HOST_WORK, start_up_ns=0
                )
                for rows in tails
            ]
        table = self.tables.get(("idle_gaps", name))
        if table is None:
            return []
        places = set(zip(*(frame[column].tolist() for column in _PLACE), strict=True))
        of_rows = zip(*(table[column].tolist() for column in _PLACE), strict=True)
        chosen = [place in places for place in of_rows]
        return [table if all(chosen) else table[chosen]]

    def _slowed_ns(self, frame: pd.DataFrame) -> int:
        """Return by how much the profiled steps are longer than unprofiled ones, if those are known."""
        steps = self._of(frame, "steps", "overhead")
        if "overhead_ns" not in steps:
            return 0
        share = (steps["overhead_ns"] / steps["profiled_ns"].where(steps["profiled_ns"] > 0)).astype(float)
        return int((share.fillna(0).clip(lower=0) * frame["window_ns"].astype(float)).sum())

    def _largest_copies(self, frame: pd.DataFrame, *, stepped: bool) -> str:
        """Return the direction with most exposed copies and its rate, in words; empty if in several."""
        exposed = self._of(frame, "overlap", STEPPED if stepped else "whole")
        whole = self._of(frame, "overlap", "whole")
        if not {"what", "exposed_ns"} <= set(exposed) or C.BYTES not in whole:
            return ""
        of_direction = ~exposed["what"].isin(["communication", "all copies"])
        sums = exposed[of_direction].groupby("what")["exposed_ns"].sum()
        if sums.empty or 2 * sums.max() <= sums.sum():
            return ""
        rows = whole[whole["what"] == sums.idxmax()]
        took, is_known = int(rows["sum_ns"].sum()), bool(rows[C.BYTES].notna().all())
        rate = human(int(rows[C.BYTES].sum()) / took, "GB/s") if took and is_known else ""
        return f", mostly {sums.idxmax()} copies{rate and f' at {rate}'}"

    def _largest_collective(self, frame: pd.DataFrame) -> str:
        """Return the kind of collective with most exposed time, in words; empty if there are several."""
        rows = self._of(frame, "overlap", "collectives")
        if "collective" not in rows:
            return ""
        sums = rows.groupby("collective")["exposed_ns"].sum()
        if sums.empty or 2 * sums.max() <= sums.sum() or sums.idxmax() == "other":
            return ""
        return f", mostly {clean(str(sums.idxmax()))}"

    def _name_waiting(self, frame: pd.DataFrame) -> str:
        """Return that ranks wait mostly in their first collective, in words; empty if not.

        Captures of ranks begin apart, and what a rank did before its own is unknown.
        """
        ranks = self._of(frame, "ranks", "stragglers")
        if "first_ns" not in ranks or 2 * ranks["first_ns"].sum() <= ranks["waited_ns"].sum():
            return ""
        return ", mostly in the first collective of the capture"

    def _describe_edges(self, frame: pd.DataFrame) -> tuple[int, int, bool]:
        """Return the idle time in marked warm-up, that set aside before queued work, and a position.

        The last is whether all other time at edges is after the last work.
        """
        warm_up_ns, aside_ns = (self._idle_sum(frame, name) for name in ("warm_up_ns", "aside_ns"))
        behind_ns = 0
        for rows in self._idle(frame, "by_cause"):
            queued = rows[rows["cause"].isin(QUEUED)]
            behind_ns += int((queued["aside_ns"] - queued.get("warm_up_ns", 0)).sum())
        explained = sum(map(len, self._idle(frame, "before_work"))) == len(frame)
        return warm_up_ns, behind_ns, explained and not aside_ns

    def _idle_sum(self, frame: pd.DataFrame, column: str) -> int:
        """Return the sum of a column of the tables of idle time, 0 without it."""
        tables = (rows for name in ("by_cause", "before_work", "summary") for rows in self._idle(frame, name))
        return sum(int(rows[column].sum()) for rows in tables if column in rows)

    def _lead(self, frame: pd.DataFrame, *, stepped: bool) -> tuple[int, str, int, int]:
        """Return how long the CPU was recorded before a device worked, what took most, and the queueing."""
        for rows in self._idle(frame, "summary"):
            if "lead_ns" in rows and rows["lead_ns"].notna().any():
                row: Mapping[Any, Any] = rows.sort_values("lead_ns").to_dict("records")[0]
                work = row.get("lead_work")
                named = (work, int(row["lead_work_ns"])) if isinstance(work, str) else ("", 0)
                return 0 if stepped else int(row["lead_ns"]), *named, int(row.get("behind_ns", 0))
        return 0, "", 0, 0

    def _of(self, frame: pd.DataFrame, name: str, table: str) -> pd.DataFrame:
        """Return the rows of a table for the devices of another one, or for their ranks, in its order."""
        other = self.tables.get((name, table))
        if other is None:
            return frame[_PLACE]
        return frame[_PLACE].merge(other, how="left", on=[key for key in _PLACE if key in other])


STEPPED = "profiled_steps"
_WINDOWS = (
    (STEPPED, "the profiled steps"),
    ("after_warm_up", "the capture after marked warm-up"),
    ("whole", "the capture"),
)
_HOST = ("host_breakdown", "by_name")
_OF_HOST = (*(("host_breakdown", name) for name in INPUTS["host_breakdown"]), ("roofline", "host"))
_KERNELS = (("kernels", "families"), ("roofline", "kernels"))
_PLACE = [C.RANK, C.DEVICE]
_AT_ENDS = (("before_work", C.DUR_NS), ("after_work", C.DUR_NS))
"""Tables of the time of steps before the first and after the last work of a device, and their columns."""


def _select_findings(verdict: Verdict, ranked: list[Ranked]) -> tuple[Ranked, ...]:
    """Return the findings on the bound and the loss, then the largest others that are no information."""
    wanted = {verdict.bound, verdict.loss} - {None, Bottleneck.UNKNOWN}
    wanted |= set(LATE) if wanted & set(LATE) else set()
    related = [finding for finding in ranked if finding.bound in wanted]
    serious = [finding for finding in ranked if finding.finding.severity != Severity.INFO]
    order = [
        *(finding for finding in serious if finding in related),
        *(finding for finding in serious if finding not in related),
        *(finding for finding in related if finding not in serious),
    ]
    return tuple(order[:MAX_VERDICT_FINDINGS])


def integrity_line(result: Result) -> str:
    """Return the integrity verdict in one line, or why there is none."""
    if "verdict" not in result.tables:
        return f"{INTEGRITY}: unknown: {clean('; '.join(result.notes))}\n"
    row = result.tables["verdict"].iloc[0]
    return f"{INTEGRITY}: {clean(str(row['verdict']))}: {clean(str(row['reason']))}\n"


def judge(run: Run, *, by: Analyze = analyze) -> Verdict:
    """Return what bounds a run, from the analyses in `INPUTS` alone and so without findings.

    Args:
        run: The run.
        by: What gives the results; computes them by default.
    """
    evidence = Evidence()
    for name in INPUTS:
        try:
            evidence.add(name, by(run, name))
        except PluginError as error:
            evidence.add(name, Result(notes=(f"failed: {error.message}",), incomplete=True))
    return evidence.verdict()
