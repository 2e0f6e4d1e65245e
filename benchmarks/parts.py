"""Parts of the benchmark: their inputs and the commands measured on them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.contenders import dashboard_clients, export_readers, run_analyses, trace_readers
from benchmarks.inputs import (
    Base,
    amplified_export,
    amplified_trace,
    given_export,
    given_trace,
    gzipped_trace,
    imported_run,
    simulated_export,
    simulated_trace,
    split_trace,
)
from benchmarks.runner import interleaved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from benchmarks.inputs import Export, ImportedRun, Trace
    from benchmarks.peers import Environment
    from benchmarks.runner import Contender, Limits, Row


TEXTS = Path(__file__).with_name("text")
RECORDED = Path(__file__).parents[1] / "samples" / "recorded" / "resnet50-train-cpu" / "trace.json.gz"
RECORDED_MB = 100
"""Largest size of the recorded CPU trace; beyond it, the simulated one gives the same ratios."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """Costs of all contenders on one input.

    Attributes:
        series: Name shared with the same input in other sizes; exponents are fitted over a series.
        size: Uncompressed size in bytes.
        events: Number of events; exponents are fitted to it.
        rows: One per contender, in table order.
    """

    series: str
    size: int
    events: int
    rows: tuple[Row, ...]


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of the benchmark.

    Attributes:
        name: Name on the command line.
        title: Heading.
        inside: Reported figures that tables show; empty for a table of all of them.
        unit: What an event is called.
        measure: Yields cases, from small to large within a series.
    """

    name: str
    title: str
    inside: tuple[str, ...]
    unit: str
    measure: Callable[[Plan], Iterator[Case]]

    @property
    def text(self) -> str:
        """Method and limits of the measurement."""
        return (TEXTS / f"{self.name}.md").read_text().strip()


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Options of a benchmark run.

    Attributes:
        sizes: Sizes of the inputs, MB, ascending.
        rounds: Runs of each contender.
        folder: Folder for inputs, peers and scratch files.
        limits: Limits of one run.
        peers: Environment of each peer.
        source: Kineto trace to amplify; None for the built-in ones.
        export: SQLite export to amplify; None for the simulated one.
        as_it_is: Whether to measure `source` and `export` themselves.
        only: Select contenders whose name contains one of these; empty for all.
        log: Called with progress lines.
    """

    sizes: tuple[float, ...]
    rounds: int
    folder: Path
    limits: Limits
    peers: Mapping[str, Environment]
    source: Path | None = None
    export: Path | None = None
    as_it_is: bool = False
    only: tuple[str, ...] = ()
    log: Callable[[str], None] = print

    @property
    def inputs(self) -> Path:
        """The folder of the inputs."""
        folder = self.folder / "inputs"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def case(self, series: str, size: int, events: int, contenders: Sequence[Contender]) -> Case:
        """Measure the contenders on one input.

        Args:
            series: Name shared with the same input in other sizes.
            size: Uncompressed size in bytes.
            events: Number of events.
            contenders: Contenders.
        """
        self.log(f"{series}: {size / 1e6:,.1f} MB, {events:,} events")
        chosen = [
            one
            for one in contenders
            if not self.only or not one.against or any(word in one.name for word in self.only)
        ]
        scratch = self.folder / f"scratch-{os.getpid()}"
        rows = interleaved(
            chosen,
            rounds=self.rounds,
            scratch=scratch,
            limits=self.limits,
            log=lambda text: self.log("  " + text),
        )
        return Case(series=series, size=size, events=events, rows=tuple(rows))


def traces(plan: Plan) -> Iterator[Trace]:
    """Plain traces of each size."""
    if plan.source and plan.as_it_is:
        yield given_trace(plan.inputs, _base(plan.source))
        return
    base = _base(plan.source) if plan.source else Base(name="simulated", path=simulated_trace(plan.inputs))
    yield from _amplified(plan, base, plan.sizes)


def recorded_traces(plan: Plan) -> Iterator[Trace]:
    """Traces amplified from the recorded one; none if `--source` is given."""
    if not plan.source:
        base = Base(name="recorded", path=RECORDED, on_device=False)
        yield from _amplified(plan, base, tuple(size for size in plan.sizes if size <= RECORDED_MB))


def exports(plan: Plan) -> Iterator[Export]:
    """Exports of each size."""
    if plan.export and plan.as_it_is:
        yield given_export(_base(plan.export))
        return
    base = _base(plan.export) if plan.export else Base(name="simulated", path=simulated_export(plan.inputs))
    for size in plan.sizes:
        plan.log(f"making an export of {size:g} MB from {base.path.name}")
        yield amplified_export(plan.inputs, base, size)


def _amplified(plan: Plan, base: Base, sizes: tuple[float, ...]) -> Iterator[Trace]:
    for size in sizes:
        plan.log(f"making a trace of {size:g} MB from {base.path.name}")
        yield amplified_trace(plan.inputs, base, size)


def _base(path: Path) -> Base:
    return Base(name=path.name.partition(".")[0], path=path)


def _ingest_cases(plan: Plan) -> Iterator[Case]:
    for plain in chain(traces(plan), recorded_traces(plan)):
        split = split_trace(plain)
        for trace in (plain, gzipped_trace(plain)):
            readers = trace_readers(trace, plan.peers, split)
            yield plan.case(f"{trace.base.name}, {trace.form}", trace.size, trace.events, readers)


def _nsys_cases(plan: Plan) -> Iterator[Case]:
    for export in exports(plan):
        readers = export_readers(export, plan.peers)
        yield plan.case(f"{export.base.name}, SQLite", export.size, export.events, readers)


def _run_cases(
    plan: Plan, contenders: Callable[[ImportedRun, Sequence[str]], Sequence[Contender]]
) -> Iterator[Case]:
    for trace in traces(plan):
        run = imported_run(trace)
        yield plan.case(trace.base.name, run.size, run.events, contenders(run, plan.only))


_PARTS = (
    Part(
        name="ingest",
        title="Reading a Kineto trace",
        inside=("read_s", "parse_s", "load_s", "breakdown_s"),
        unit="events",
        measure=_ingest_cases,
    ),
    Part(
        name="nsys",
        title="Reading an export of Nsight Systems",
        inside=("read_s",),
        unit="rows",
        measure=_nsys_cases,
    ),
    Part(
        name="analyses",
        title="Analyzing a run",
        inside=("analyze_s", "analyze_cpu_s"),
        unit="intervals",
        measure=lambda plan: _run_cases(plan, run_analyses),
    ),
    Part(
        name="dashboard",
        title="Requesting dashboard pages",
        inside=(),
        unit="intervals",
        measure=lambda plan: _run_cases(plan, dashboard_clients),
    ),
)
PARTS = {part.name: part for part in _PARTS}
