"""Tools for agents answer from runs: numbers with units, evidence with names, refusals with a hint."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from samples.simulator import Program
from samples.simulator.planted import idle
from tests.browser import hostile
from tracekit.agents.replies import MAX_BYTES
from tracekit.agents.tools import ReadTools, reading_tools
from tracekit.analysis.findings import advise
from tracekit.errors import TracekitError, UnusableInputError

if TYPE_CHECKING:
    from tests.shared_runs import SharedRuns
    from tracekit.runs.run import Run


def stacked() -> Program:
    """Steps whose input takes long, in a function whose source line is recorded."""
    made = Program()
    for _ in range(4):
        with made.step():
            with made.python("train.py(12): load"), made.annotation("enumerate(DataLoader)#Loader.__next__"):
                made.wait(400_000)
            with made.op(
                "aten::mm", **{"Call stack": "/x/site-packages/torch/f.py(1): f;train.py(40): step"}
            ):
                made.kernel("gemm", 20_000)
                made.kernel("gemm", 20_000)
            made.synchronize()
    return made


@pytest.fixture(scope="module")
def run(shared_runs: SharedRuns) -> Run:
    return shared_runs.simulated(stacked())


@pytest.fixture
def tools(shared_runs: SharedRuns) -> ReadTools:
    return ReadTools(shared_runs._store)


def test_a_verdict_has_its_bound_its_window_and_parts_that_sum_to_it(tools: ReadTools, run: Run) -> None:
    text = tools.verdict(run.id)
    assert re.search(r"^bound: input$", text, re.MULTILINE)
    assert f"run {run.id}: 4 profiled steps, mean" in text
    assert re.search(r"^integrity: (good|usable)", text, re.MULTILINE)
    shares = [float(share) for share in re.findall(r"^- .*: (\d+\.\d)%", text, re.MULTILINE)]
    assert sum(shares) == pytest.approx(100, abs=0.5)
    assert re.search(r"^1\. HIGH idle_dataload: .* per step .*measured\]$", text, re.MULTILINE)


def test_a_finding_is_explained_by_names_times_source_lines_and_a_way_to_prove_it(
    tools: ReadTools, run: Run
) -> None:
    text = tools.explain(run.id, 1)
    assert "rule idle_dataload:" in text
    assert re.search(
        r"- annotation ⟦enumerate\(DataLoader\)#Loader.__next__⟧: rank 0, thread \d+, from \d+ ns", text
    )
    assert "source ⟦train.py(12): load⟧" in text
    assert "`tracekit try --change num_workers" in text
    assert "row_id" not in text
    with pytest.raises(UnusableInputError, match="there is no finding 99"):
        tools.explain(run.id, 99)


def test_findings_of_the_same_time_are_explained_together(tools: ReadTools, shared_runs: SharedRuns) -> None:
    run = shared_runs.simulated(idle.slow_machine())
    number, ranked = next((n, r) for n, r in enumerate(advise(run).findings, 1) if r.finding.remedies)
    for text in (tools.explain(run.id, number), tools.findings(run.id)):
        assert all(f"also {remedy.code}: {remedy.title}" in text for remedy in ranked.finding.remedies)


def test_findings_are_filtered_by_severity_and_paged(tools: ReadTools, run: Run) -> None:
    every, high = tools.findings(run.id), tools.findings(run.id, severity="high")
    assert every.count("\n   do: ") > high.count("\n   do: ") >= 1
    assert "cannot judge" in every
    first = re.findall(r"^\d+\. .*", every, re.MULTILINE)
    second = tools.findings(run.id, start=1)
    assert re.findall(r"^\d+\. .*", second, re.MULTILINE) == first[1:]


def test_what_cannot_be_told_is_said(tools: ReadTools, shared_runs: SharedRuns) -> None:
    program = Program()
    with program.step(), program.op("aten::add"):
        program.kernel("k", 1_000)
    run = shared_runs.simulated(program)
    text = tools.verdict(run.id)
    assert "bound: cannot tell" in text
    assert "Cannot tell what bounds this run" in text
    assert "code for torch.profiler:" in tools.what_to_record(run.id)


def test_tables_are_filtered_sorted_and_paged(tools: ReadTools, run: Run) -> None:
    assert "table whole: " in tools.analyze("gpu_breakdown", run.id)
    columns = ["step", "idle_ns"]
    text = tools.analyze("gpu_breakdown", run.id, "per_step", columns, ["step>0"], "-step", rows=2)
    lines = text.splitlines()
    assert [line.split(" | ")[0] for line in lines[-3:-1]] == ["3", "2"]
    assert lines[-4] == "step | idle_ns"
    assert lines[-1] == "rows 1 to 2 of 3; continue with start=2"
    assert "rows 3 to 3 of 3" in tools.analyze(
        "gpu_breakdown", run.id, "per_step", columns, ["step>0"], start=2
    )
    assert "\nname\ngemm\n" in tools.analyze("kernels", run.id, "names", ["name"], ["name~GEM"])
    assert "\nname\nnote: " in tools.analyze("kernels", run.id, "names", ["name"], ["name~other"])


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (["nothing=1"], "unknown column"),
        (["step"], "is not a condition"),
        (["step>x"], "'x' is not a number"),
    ],
)
def test_a_condition_that_cannot_be_read_is_refused(
    where: list[str], message: str, tools: ReadTools, run: Run
) -> None:
    with pytest.raises(UnusableInputError, match=message):
        tools.analyze("gpu_breakdown", run.id, "per_step", where=where)


def test_a_range_shows_intervals_in_order_and_its_totals(tools: ReadTools, run: Run) -> None:
    text = tools.timeline(run.id, step=1, tracks="all", min_dur_ns=5_000)
    assert "device 0: busy 40.00 µs (union), idle" in text
    starts = [int(start) for start in re.findall(r"^(\d+) \| ", text, re.MULTILINE)]
    assert starts == sorted(starts)
    assert "| device 0 stream 7 | kernel | gemm" in text
    assert "shorter than min_dur_ns omitted" in text
    with pytest.raises(UnusableInputError, match="there is no step 9"):
        tools.timeline(run.id, step=9)


def test_a_diff_says_that_single_runs_have_no_verdict(tools: ReadTools, shared_runs: SharedRuns) -> None:
    base, head = shared_runs.simulated(idle.loading(clean=True)), shared_runs.simulated(idle.loading())
    text = tools.diff(base.id, head.id)
    assert "no verdict: step time" in text
    assert "one run per side: no variance estimate" in text
    assert "data loading idle" in text


@pytest.mark.parametrize("sql", ["DROP TABLE steps", "SELECT * FROM read_csv('/etc/passwd')"])
def test_a_query_only_reads_tables_of_runs(sql: str, tools: ReadTools, run: Run) -> None:
    with pytest.raises(TracekitError, match="not allowed"):
        tools.query(sql, run.id)


def test_hostile_names_are_neutralized_in_every_reply(tools: ReadTools, shared_runs: SharedRuns) -> None:
    run = shared_runs.simulated(hostile.program())
    replies = [
        *(tools.verdict(run.id), tools.findings(run.id), tools.explain(run.id, 1), tools.list_runs()),
        *(tools.analyze("kernels", run.id), tools.timeline(run.id), tools.what_to_record(run.id)),
    ]
    for reply in replies:
        assert len(reply.encode()) <= MAX_BYTES
        assert "<script" not in reply
        assert "<img" not in reply
        assert "](javascript" not in reply
        assert "\u202e" not in reply


def test_every_tool_tells_an_agent_what_it_is_for(tools: ReadTools) -> None:
    described = {tool.__name__: (tool.__doc__ or "", reads) for tool, reads in reading_tools(tools)}
    assert [name for name, (_, reads) in described.items() if not reads] == ["import_traces"]
    assert all(60 < len(text) < 700 for text, _ in described.values())
