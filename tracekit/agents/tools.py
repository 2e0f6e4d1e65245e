"""Tools that only read runs, or add a run by importing a trace; each returns a reply of bounded size.

Docstrings of the methods of `ReadTools` are what an agent chooses by: they are sent to it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from tracekit import analysis
from tracekit.agents import excerpts
from tracekit.agents.replies import lines_of, name, page, prose
from tracekit.analysis import Bottleneck, Column
from tracekit.analysis.cache import ResultCache
from tracekit.analysis.findings import Advice, advise_cached
from tracekit.analysis.savings import TRIALS, Ranked
from tracekit.diff.engine import Options
from tracekit.diff.engine import diff as compare_runs
from tracekit.diff.model import runs_of
from tracekit.errors import UnusableInputError, clean, unknown_name
from tracekit.export.query_process import Query, default_memory, run_query
from tracekit.ingest.references import resolve
from tracekit.render import diff_sentences, diff_tables
from tracekit.render.cells import records
from tracekit.runs.run import Run
from tracekit.runs.store import Store
from tracekit.runs.text import human
from tracekit.schema import C

_ROWS = 20
_MAX_ROWS = 200
_MAX_QUERY_ROWS = 5_000
_QUERY_S = 60.0
_MAX_CACHED = 8
_FINDING_ROWS = 6
_CONDITION = re.compile(r"\s*(\w+)\s*(>=|<=|!=|=|>|<|~)\s*(.*?)\s*")
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": lambda values, wanted: values == wanted,
    "!=": lambda values, wanted: values != wanted,
    ">": lambda values, wanted: values > wanted,
    ">=": lambda values, wanted: values >= wanted,
    "<": lambda values, wanted: values < wanted,
    "<=": lambda values, wanted: values <= wanted,
}


@dataclass
class ReadTools:
    """The tools of a store; results are cached as those of the commands are."""

    store: Store  # the runs
    # advice on the runs that were asked about last, by run id
    advised: dict[str, Advice] = field(default_factory=dict)

    def list_runs(self, label: str = "", start: int = 0) -> str:
        """List the runs of the store, newest first: id, label, workload, rows.

        Call it first if you were given no trace. `label` filters; `start` reads on.
        """
        runs = [run for run in reversed(self.store.readable()) if not label or run.header.label == label]
        lines = [_run_line(run) for run in runs]
        head = [f"{len(lines)} runs in the store" + (f" with label {name(label)}" if label else "")]
        return page(head, lines[start:], start=start, total=len(lines), what="runs")

    def import_traces(self, paths: list[str], label: str = "") -> str:
        """Import trace files of torch.profiler (JSON, .gz) or Nsight Systems (.sqlite) as runs.

        The traces of one job's ranks become one run. Files stay as they are. Where a tool takes `run`, the
        path of one trace works as well, so import only to set a label or to join ranks.
        """
        from tracekit.ingest.importer import import_traces
        from tracekit.storage import expand

        if not paths:
            raise UnusableInputError("no path is given", hint="give the paths of traces")
        places = [place for path in paths for place in expand(path)]
        runs = import_traces(self.store, places, label=label or None)
        return page([f"imported {len(runs)} runs; next: verdict(run)"], [_run_line(run) for run in runs])

    def verdict(self, run: str = "latest") -> str:
        """Say what bounds a run, with every part of its time, and the findings that matter most.

        Always the first question about a run. "bound: cannot tell" means just that: do not guess a cause,
        call `what_to_record`. `run` is an id, `latest`, `latest~1`, a label, or the path of a trace.
        """
        opened = self._open(run)
        advice = self._advise(opened)
        verdict = advice.verdict
        if verdict is None:
            return page([*_head(opened, advice), "bound: cannot tell (an analysis failed)"], _missing(advice))
        bound = "cannot tell" if verdict.bound == Bottleneck.UNKNOWN else verdict.bound.value
        lines = [f"bound: {bound}", prose(verdict.sentence)]
        if verdict.loss:
            lines.append(f"largest loss beside it: {verdict.loss.value}")
        if verdict.parts:
            lines.append(
                f"parts of {prose(verdict.window)}, {human(verdict.window_ns, 'ns')}, which sum to it:"
            )
            lines += [
                f"- {part.bound.value}{f' ({name(part.label)})' if part.label != part.bound else ''}: "
                f"{human(part.share, 'share')}, {human(part.dur_ns, 'ns')}"
                for part in verdict.parts
                if part.dur_ns
            ]
        carried = [(_place(advice, ranked), ranked) for ranked in verdict.findings]
        lines += (
            ["findings behind it (explain(run, number) for evidence):"]
            if carried
            else ["no finding behind it"]
        )
        for place, ranked in carried:
            lines += [_finding_line(place, ranked), *_remedy_lines(ranked)]
        if advice.capture:
            missing = ", ".join(prose(item.missing) for item in advice.capture.missing)
            lines.append(f"not recorded: {missing} (what_to_record(run))")
        return page(_head(opened, advice), lines, what="lines")

    def findings(self, run: str = "latest", severity: str = "info", start: int = 0) -> str:
        """List advice on a run, largest saving first, and what could not be judged and why.

        Savings overlap: never add them. `severity` is the lowest shown: high, warn or info.
        """
        levels = ("info", "warn", "high")
        if severity not in levels:
            raise unknown_name("severity", severity, levels)
        opened = self._open(run)
        advice = self._advise(opened)
        least = levels.index(severity)
        lines = [
            "\n   ".join(
                [
                    _finding_line(place, ranked),
                    f"do: {prose(ranked.finding.advice, most=300)}",
                    *_remedy_lines(ranked),
                ]
            )
            for place, ranked in enumerate(advice.findings, 1)
            if levels.index(ranked.finding.severity) >= least
        ]
        count = f"{len(lines)} findings of severity {severity} or more; {advice.rules} rules checked"
        head = [*_head(opened, advice), count]
        return page(head, lines[start:], start=start, total=len(lines), what="findings", end=_missing(advice))

    def explain(self, run: str = "latest", finding: int = 1) -> str:
        """Explain one finding by its number: rule, how the saving was computed, evidence, how to prove it.

        Evidence are intervals by name, time and source line. Call it before you repeat a finding's claim.
        """
        opened = self._open(run)
        advice = self._advise(opened)
        if not 1 <= finding <= len(advice.findings):
            raise UnusableInputError(
                f"there is no finding {finding}",
                hint=f"the run has {len(advice.findings)}: call findings(run)",
            )
        ranked = advice.findings[finding - 1]
        found = ranked.finding
        definition = analysis.get(ranked.analysis)
        rule = next((rule for rule in definition.rules if rule.code == found.code), None)
        lines = [
            _finding_line(finding, ranked),
            f"do: {prose(found.advice)}",
            *_remedy_lines(ranked),
            f"saving: {_saving(ranked)}"
            + (f"; computed as: {prose(found.how, most=300)}" if found.how else ""),
            f"confidence in the cause: {100 * found.confidence:.0f}%",
        ]
        if rule:
            lines.append(
                f"rule {rule.code}: {prose(rule.condition, most=400)}; why: {prose(rule.reason, most=400)}"
            )
        lines += [prose(trial.text) for trial in ranked.measured]
        if ranked.is_refuted:
            lines.append("changes that this rule advises saved nothing on other programs of this store")
        lines.append(f"more: analyze(run, {ranked.analysis!r})")
        evidence = excerpts.describe_evidence(opened, found.evidence)
        lines += ["evidence:", *evidence] if evidence else ["evidence: the tables of the analysis"]
        return page(_head(opened, advice), [*lines, *_proof(found.code)], what="lines")

    def list_analyses(self, analysis_name: str = "") -> str:
        """List all analyses with the question that each answers, or the tables and columns of one."""
        if not analysis_name:
            lines = [f"{known.name}: {prose(known.question)}" for known in analysis.available()]
            return page(["analyses (give a name for its tables and columns)"], lines, what="analyses")
        known = analysis.get(analysis_name)
        lines = []
        for table in known.tables:
            lines.append(f"table {table.name}: {table.title}")
            lines += [
                f"  {column.name} ({column.unit or 'name'}): {prose(column.meaning)}"
                for column in table.columns
            ]
        head = [f"{known.name}: {known.question}", f"definition: {prose(known.definition, most=1_500)}"]
        return page(head, lines, what="lines")

    def analyze(
        self,
        name: str,
        run: str = "latest",
        table: str = "",
        columns: list[str] | None = None,
        where: list[str] | None = None,
        sort: str = "",
        start: int = 0,
        rows: int = _ROWS,
    ) -> str:
        """Return a table of one analysis: the numbers behind a verdict or finding.

        Without `table`, the first rows of each. `where` has conditions that must all hold, such as
        ["dur_ns>1000", "name~gemm"] (`~` is "contains"); `sort` a column, descending with a leading `-`;
        `start` and `rows` read on. Times are integer ns in conditions.
        """
        opened = self._open(run)
        definition = analysis.get(name)
        result = ResultCache(self.store).analyze(opened, name)
        notes = [f"note: {prose(note)}" for note in result.notes]
        head = [*_head(opened, self.advised.get(opened.id)), f"{definition.name}: {definition.question}"]
        if not result.tables:
            return page([*head, "cannot tell: no table"], notes, what="notes")
        specs = {spec.name: spec for spec in definition.tables}
        if not table:
            lines = []
            for key, frame in result.tables.items():
                lines += [f"table {key}: {specs[key].title}, {len(frame):,} rows"]
                few = records(frame.head(_FINDING_ROWS), specs[key].columns)
                lines += lines_of(few, specs[key].columns)
            return page(head, lines, what="lines", end=notes)
        frame = _select(result.tables[table], specs[table].columns, where or [], sort)
        chosen = _columns(specs[table].columns, columns or [])
        shown = records(frame.iloc[start : start + max(1, min(rows, _MAX_ROWS))], chosen)
        title, *lines = lines_of(shown, chosen)
        head += [f"table {table}: {specs[table].title}", title]
        return page(head, lines, start=start, total=len(frame), end=notes)

    def diff(self, base: str, head: str = "latest", by: str = "op", start: int = 0) -> str:
        """Compare two runs: verdict with interval, step time by part, and the causes of the difference.

        "no verdict" or "not comparable" is an answer: say so, and give the reason. `by` groups causes by op,
        module or kernel. A side may be a label, which means all its runs.
        """
        sides = runs_of(self.store, base), runs_of(self.store, head)
        comparison = compare_runs(
            *sides, references=(base, head), options=Options(by=by), recorded=self.store.readable()
        )
        sentences = [
            diff_sentences.headline(comparison),
            f"base: {diff_sentences.describe_side(comparison.base)}",
            f"head: {diff_sentences.describe_side(comparison.head)}",
        ]
        if comparison.compared:
            sentences += [
                diff_sentences.describe_steps(comparison),
                diff_sentences.describe_largest(comparison),
            ]
        sentences += [diff_sentences.describe_differences(comparison)] if comparison.compared else []
        sentences += [*comparison.warnings, *comparison.misleading, diff_sentences.next_step(comparison)]
        lines = []
        tables = (
            diff_tables.all_tables(comparison)
            if comparison.compared
            else [diff_tables.differences(comparison)]
        )
        for table in (table for table in tables if table.rows and table.name != "groups"):
            columns = diff_tables.nonempty_columns(table.columns, table.rows)
            lines += [f"table {table.name}: {table.title}", *lines_of(table.rows, columns)]
        return page(
            [prose(text) for text in sentences if text],
            lines[start:],
            start=start,
            total=len(lines),
            what="lines",
        )

    def query(self, sql: str, run: str = "latest", start: int = 0) -> str:
        """Run one read-only SELECT in DuckDB's SQL on a run's tables, where no analysis has the numbers.

        Tables: device_intervals, host_intervals, steps, counters, allocations, runs; times are integer ns,
        sizes bytes, as column names say. DESCRIBE a table for its columns. Aggregate: rows cost tokens.
        """
        opened = self._open(run)
        asked = Query(
            sql=sql,
            store=str(self.store.path),
            references=[opened.id],
            limit=_MAX_QUERY_ROWS,
            output_format="json",
            seconds=_QUERY_S,
            memory_bytes=default_memory(),
        )
        with closing(run_query(asked)) as texts:
            answer: dict[str, Any] = json.loads("".join(texts))
        columns = [str(column["name"]) for column in answer["columns"]]
        lines = [" | ".join(_raw(row[column]) for column in columns) for row in answer["rows"]]
        more = answer.get("more")
        head = [f"run {opened.id}", " | ".join(name(column) for column in columns)]
        head[:0] = [f"only the first {_MAX_QUERY_ROWS:,} rows were read"] if more else []
        return page(head, lines[start:], start=start, total=len(lines))

    def timeline(
        self,
        run: str = "latest",
        start_ns: int | None = None,
        end_ns: int | None = None,
        step: int | None = None,
        rank: int | None = None,
        tracks: str = "device",
        min_dur_ns: int = 0,
        start: int = 0,
    ) -> str:
        """Return what devices and threads did in a time range or a step, in order, with busy and idle time.

        Give start_ns and end_ns (as evidence has them) or a step; default: the middle step. `tracks` is
        device, host or all; `min_dur_ns` omits short intervals.
        """
        opened = self._open(run)
        if not opened.ranks:
            raise UnusableInputError(f"run {opened.id} has no profile", hint="verdict(run) says what it has")
        chosen = opened.ranks[0] if rank is None else rank
        if start_ns is None or end_ns is None:
            start_ns, end_ns = self._step_window(opened, chosen, step)
        return excerpts.describe_range(
            opened, (start_ns, end_ns), rank=chosen, tracks=tracks, min_dur_ns=min_dur_ns, start=start
        )

    def what_to_record(self, run: str = "latest") -> str:
        """Say what a run lacks, which question each missing piece would answer, and the code that records it.

        Call it when an answer is "cannot tell", or before you ask the user for another trace.
        """
        opened = self._open(run)
        advice = self._advise(opened)
        lines = []
        if advice.capture:
            lines += [f"- {prose(item.text)}" for item in advice.capture.missing]
            lines += [f"code for {prose(advice.capture.framework)}:", *map(clean, advice.capture.lines)]
        lines += _missing(advice)
        return page(_head(opened, advice), lines or ["nothing is missing: record nothing more"], what="lines")

    def _open(self, reference: str) -> Run:
        return resolve(self.store, reference)

    def _advise(self, run: Run) -> Advice:
        """Return advice as `tracekit findings` does, from its cache or the memory of this process."""
        if run.id not in self.advised:
            advice = advise_cached(ResultCache(self.store), run)
            if len(self.advised) >= _MAX_CACHED:
                self.advised.pop(next(iter(self.advised)))
            self.advised[run.id] = advice
        advice = self.advised[run.id]
        if not (self.store.local_folder / TRIALS).is_file():
            return advice
        from tracekit.experiments.trial_log import add_trials, read_trials

        return add_trials(advice, run, read_trials(self.store))

    def _step_window(self, run: Run, rank: int, step: int | None) -> tuple[int, int]:
        """Return the window of a step, by default the middle one, in ns."""
        table = run.arrow("steps", columns=[C.RANK, C.STEP, C.START_NS, C.DUR_NS])
        rows = [row for row in table.to_pylist() if row[C.RANK] == rank]
        if not rows:
            raise UnusableInputError("no steps are marked", hint="give start_ns and end_ns")
        numbers = [row[C.STEP] for row in rows]
        if step is not None and step not in numbers:
            raise UnusableInputError(f"there is no step {step}", hint=f"steps {numbers[0]} to {numbers[-1]}")
        row = rows[len(rows) // 2] if step is None else rows[numbers.index(step)]
        return row[C.START_NS], row[C.START_NS] + row[C.DUR_NS]


def _run_line(run: Run) -> str:
    meta = run.header
    label = f", label {name(meta.label)}" if meta.label else ""
    named = (meta.workload or {}).get("name")
    workload = f", workload {name(named)}" if named else ""
    return f"{run.id}{label}{workload}, created {meta.created_at}"


def _head(run: Run, advice: Advice | None) -> list[str]:
    """Return the run, the window that shares and savings refer to, and how far its numbers can be trusted."""
    if advice is None:
        return [f"run {run.id}"]
    budget = advice.budget
    if not budget.step_ns:
        window = "no intervals recorded"
    elif budget.marked:
        window = f"{budget.steps} profiled steps, mean {human(budget.step_ns, 'ns')}; savings are per step"
    else:
        window = f"no steps marked: savings are per capture of {human(budget.step_ns, 'ns')}"
    return [f"run {run.id}: {window}", prose(advice.integrity.strip() or "integrity: cannot tell")]


def _missing(advice: Advice) -> list[str]:
    return [f"cannot judge {', '.join(names)}: {prose(note, most=250)}" for note, names in advice.lacking]


def _place(advice: Advice, ranked: Ranked) -> int:
    """Return the number of a finding of the verdict among all of them."""
    same = [
        place
        for place, other in enumerate(advice.findings, 1)
        if (other.finding.code, other.finding.title) == (ranked.finding.code, ranked.finding.title)
    ]
    return same[0] if same else 0


def _saving(ranked: Ranked) -> str:
    finding = ranked.finding
    if finding.saving_ns_per_step is None:
        return "cannot tell"
    share = "" if ranked.share_of_step is None else f" ({human(ranked.share_of_step, 'share')} of the step)"
    saving = f"{finding.saves} {human(finding.saving_ns_per_step, 'ns')} per step"
    return f"{saving}{share}, {finding.basis or 'estimated'}"


def _finding_line(place: int, ranked: Ranked) -> str:
    finding = ranked.finding
    title = prose(finding.title, most=300)
    return f"{place}. {finding.severity.upper()} {finding.code}: {title} [{_saving(ranked)}]"


def _remedy_lines(ranked: Ranked) -> list[str]:
    """Return the findings of the same time, a line each."""
    return [
        f"also {remedy.code}: {prose(remedy.title, most=200)}; do: {prose(remedy.advice, most=300)}"
        for remedy in ranked.finding.remedies
    ]


def _proof(code: str) -> list[str]:
    """Return the changes of `tracekit try` that follow the advice of a rule."""
    from tracekit.recording.changes import available

    names = [known for known, change in available().items() if code in change.answers]
    if not names:
        return ["prove it: change the code, then `tracekit ab BASE HEAD -- CMD`"]
    options = " ".join(f"--change {known}" for known in names)
    return [f"prove it without an edit: `tracekit try {options} -- CMD`"]


def _columns(known: Sequence[Column], wanted: Sequence[str]) -> list[Column]:
    by_name = {column.name: column for column in known}
    for column in wanted:
        if column not in by_name:
            raise unknown_name("column", column, by_name)
    return [by_name[column] for column in wanted] or list(known)


def _select(frame: pd.DataFrame, columns: Sequence[Column], where: Sequence[str], sort: str) -> pd.DataFrame:
    """Return the rows that satisfy all conditions, sorted."""
    for condition in where:
        match = _CONDITION.fullmatch(condition)
        if match is None:
            raise UnusableInputError(
                f"{condition!r} is not a condition", hint='such as "dur_ns>1000" or "name~gemm"'
            )
        (column,) = _columns(columns, [match[1]])
        values = frame[column.name]
        if match[2] == "~":
            keep = values.astype(str).str.contains(match[3], case=False, regex=False)
        else:
            is_number = values.dtype.kind in "iufb" or str(values.dtype) in {"Int64", "Float64", "boolean"}
            keep = _COMPARE[match[2]](values, _number(match[3]) if is_number else match[3])
        frame = frame[keep.fillna(value=False).astype(bool)]
    if sort:
        (column,) = _columns(columns, [sort.removeprefix("-")])
        frame = frame.sort_values(column.name, ascending=not sort.startswith("-"), kind="stable")
    return frame


def _number(text: str) -> float:
    try:
        return float(text) if "." in text or "e" in text.lower() else int(text)
    except ValueError:
        raise UnusableInputError(
            f"{text!r} is not a number", hint="times are in ns, shares from 0 to 1"
        ) from None


def _raw(value: Any) -> str:
    """Return an exact value of a query; text is a name from the trace."""
    if value is None:
        return "?"
    return str(value) if isinstance(value, bool | int | float) else name(value)


def reading_tools(tools: ReadTools) -> Iterator[tuple[Callable[..., str], bool]]:
    """Yield the tools in the order of their use, each with whether it only reads."""
    for tool in (
        *(tools.list_runs, tools.verdict, tools.findings, tools.explain, tools.what_to_record),
        *(tools.analyze, tools.list_analyses, tools.diff, tools.timeline, tools.query),
    ):
        yield tool, True
    yield tools.import_traces, False
