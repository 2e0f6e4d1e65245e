"""`tracekit diff`: formats, exit codes, and what a person may name."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest

from samples.simulator import write
from samples.simulator.planted.changes import FILL_NS, Variant, program
from tests.builders import host, make_run, step
from tracekit.runs.meta import Git, Timings
from tracekit.schema import C, Phase

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Git as Repository
    from tests.unit.cli.conftest import Done
    from tracekit.runs.store import Store

    Tracekit = Callable[..., Done]

PLAIN, LOOP = Variant(), Variant(fills=16)
HOSTILE = "<script>alert(1)</script>|`[bold]\x1b[2J"


@pytest.fixture
def traces(tmp_path: Path) -> tuple[str, str]:
    paths = (tmp_path / "before.json", tmp_path / "after.json")
    for path, variant in zip(paths, (PLAIN, LOOP), strict=True):
        write(program(variant), path)
    return str(paths[0]), str(paths[1])


def measured(directory: Path, *, label: str, step_ns: int, second: int, **more: Any) -> None:
    """A run of one op, timed without a profiler."""
    make_run(
        directory,
        meta={
            "run_id": f"20261121T0000{second:02}Z-made-{second:06}",
            "created_at": f"2026-11-21T00:00:{second:02}Z",
            "label": label,
            "timings": Timings([step_ns] * 3, [], "perf_counter"),
            **more,
        },
        host_intervals=[host("aten::mm", 0, 80, step=1)],
        steps=[step(1, 0, 100)],
    )


def test_json_is_the_documented_object(tracekit: Tracekit, traces: tuple[str, str]) -> None:
    done = tracekit("diff", *traces, "--format", "json", "--no-explain")
    assert done.code == 0
    found = json.loads(done.out)
    assert list(found) == [
        "schema",
        "verdict",
        "exit_code",
        "base",
        "head",
        "comparability",
        "design",
        "metrics",
        "compared",
        "ledger",
        "by",
        "causes",
        "groups",
        "counts",
        "only_base",
        "only_head",
        "match",
        "analyses",
        "warnings",
        "misleading",
    ]
    assert (found["schema"], found["verdict"], found["exit_code"]) == ("tracekit.diff/1", "no verdict", 0)
    assert found["base"]["commit"] is None
    assert found["comparability"] == {"status": "comparable", "differences": []}
    assert found["design"].pop("order") in {"", "AB"}  # whether both were imported within one second
    assert found["design"] == {"k": [1, 1], "paired": False, "alpha": None, "theta": 0.07}
    added = 4 * 15 * FILL_NS
    assert found["ledger"]["work"] == {
        "a_ns": found["ledger"]["work"]["b_ns"] - added,
        "b_ns": found["ledger"]["work"]["b_ns"],
        "delta_ns": added,
        "added": 0,
        "removed": 0,
        "count": added,
        "rate": 0,
        "residual": 0,
    }
    (group,) = found["groups"]
    assert group["path"] == ["aten::zero_", "aten::fill_"]
    assert (group["role"], group["rung"]) == ("fill", "hash")
    assert group["a"] == {"count": 4, "total_ns": 4 * FILL_NS}
    assert group["terms"] == {"added": 0, "removed": 0, "count": added, "rate": 0}
    assert sorted(group["evidence"]) == ["a", "b"]
    assert found["match"]["time_matched_a"] == 1.0
    (metric,) = found["metrics"]
    assert (metric["name"], metric["unit"], metric["verdict"]) == ("step_time", "ns", "no verdict")
    assert (metric["ci95"], metric["p"], metric["mde"]) == (None, None, None)


def test_nothing_but_the_differences_is_printed_where_runs_cannot_be_compared(
    tracekit: Tracekit, tmp_path: Path
) -> None:
    paths = [write(program(Variant(batch=batch)), tmp_path / f"{batch}.json") for batch in (8, 16)]
    done = tracekit("diff", *map(str, paths))
    assert done.code == 4
    assert "not comparable: the runs differ in shapes" in done.out
    assert "--varying shapes" in " ".join(done.out.split())
    assert not re.search(r"\d+\.\d+ (?:ms|µs|s)\b", done.out)
    found = json.loads(tracekit("diff", *map(str, paths), "--format", "json").out)
    assert (found["exit_code"], found["verdict"]) == (4, "not comparable")
    assert (found["metrics"], found["ledger"], found["groups"], found["match"]) == ([], None, [], None)
    assert tracekit("diff", *map(str, paths), "--varying", "shapes", "--no-explain").code == 0


def test_an_unknown_field_names_the_known_ones(tracekit: Tracekit, traces: tuple[str, str]) -> None:
    done = tracekit("diff", *traces, "--varying", "moon")
    assert done.code == 2
    assert "--varying moon" in done.err
    assert "batch_size" in done.err


@pytest.mark.parametrize("references", [("a",), ("a", "b", "c")])
def test_two_runs_are_needed(tracekit: Tracekit, references: tuple[str, ...]) -> None:
    done = tracekit("diff", *references)
    assert done.code == 2
    assert "expected two runs" in done.err


def test_one_run_a_side_never_has_a_verdict(tracekit: Tracekit, traces: tuple[str, str]) -> None:
    assert tracekit("diff", *traces, "--no-explain").code == 0
    assert tracekit("diff", *traces, "--no-explain", "--exit-code").code == 3


@pytest.mark.slow_except(1)
@pytest.mark.parametrize(
    ("step_ns", "code", "verdict"),
    [(120_000, 1, "regression"), (100_100, 0, "pass"), (80_000, 0, "improvement")],
)
def test_runs_of_a_label_are_judged_together(
    tracekit: Tracekit, store: Store, step_ns: int, code: int, verdict: str
) -> None:
    for block in range(5):
        noise = (block % 2) * 50
        measured(store.path, label="before", step_ns=100_000 + noise, second=2 * block + block % 2)
        measured(store.path, label="after", step_ns=step_ns - noise, second=2 * block + 1 - block % 2)
    done = tracekit("diff", "before", "after", "--exit-code", "--no-explain", "--format", "json")
    found = json.loads(done.out)
    assert (done.code, found["verdict"]) == (code, verdict)
    assert found["design"] == {
        "k": [5, 5],
        "order": "ABBAABBAAB",
        "paired": True,
        "alpha": 0.05,
        "theta": 0.07,
    }
    assert [len(found[side]["runs"]) for side in ("base", "head")] == [5, 5]
    (metric,) = found["metrics"]
    assert metric["basis"].startswith("mean step without a profiler")


def test_a_range_means_the_runs_of_two_commits(tracekit: Tracekit, store: Store, git: Repository) -> None:
    first = git("rev-parse", "HEAD")
    git("commit", "--quiet", "--allow-empty", "--message=second")
    second = git("rev-parse", "HEAD")
    for place, sha in enumerate((first, second)):
        state = Git(sha=sha, tree="", branch="main", dirty=bool(place), diff_sha256=None, commit_time="")
        measured(store.path, label="x", step_ns=1000 + place, second=place, git=state)
    done = tracekit("diff", "HEAD~1..HEAD", "--no-explain", "--format", "json")
    found = json.loads(done.out)
    assert (found["base"]["commit"], found["head"]["commit"]) == (first, second)
    assert "the head was recorded with uncommitted changes" in " ".join(found["warnings"])


def test_a_run_without_a_device_is_compared_by_the_self_time_of_ops(tracekit: Tracekit, store: Store) -> None:
    for second, inner in ((1, 30), (2, 50)):
        make_run(
            store.path,
            meta={"run_id": f"run-{second}", "label": f"run-{second}"},
            host_intervals=[
                host("aten::linear", 0, 100, step=1),
                host("aten::mm", 10, 10 + inner, step=1, **{C.PARENT_ROW: 0, C.DEPTH: 1}),
            ],
            steps=[step(1, 0, 120)],
        )
    found = json.loads(tracekit("diff", "run-1", "run-2", "--format", "json").out)
    assert found["compared"]["on_device"] is False
    assert {group["path"][-1]: group["delta_ns"] for group in found["groups"]} == {
        "aten::linear": -20,
        "aten::mm": 20,
    }
    assert found["ledger"]["work"]["delta_ns"] == 0
    assert {line["name"]: (line["a_ns"], line["b_ns"]) for line in found["ledger"]["wall"]} == {
        "in ops": (100, 100),
        "outside of ops": (20, 20),
    }


LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def loading_run(store: Store, name: str, loading: int, *, line: int = 5, sampled: bool = True) -> None:
    """A run without a device that loads in `decode`, in which ops run too, and then computes."""
    stack = f"train.py({line}): decode;torch/utils/data/dataloader.py(9): __next__;train.py(20): main"
    sample = {"rank": 0, "tid": 1, "stack": stack, C.SOURCE_LINES: f"{line + 2},9,21"}
    of_loader = {"step": 1, "phase": Phase.DATALOAD}
    make_run(
        store.path,
        meta={"run_id": name, "label": name},
        host_intervals=[
            host(LOADER, 0, loading, kind="annotation", **of_loader),
            host("aten::rand", 10, loading // 3, parent_row=0, depth=1, **of_loader),
            host("aten::mm", loading, loading + 100, step=1),
        ],
        steps=[step(1, 0, loading + 120)],
        host_samples=[{**sample, "t_ns": loading * number // 20} for number in range(20 * sampled)],
    )


@pytest.mark.slow_except("slower", "not known")
@pytest.mark.parametrize(
    ("lengths", "base", "expected"),
    [
        ((100, 700), {"line": 4}, "data loading +600 ns per step (in train.py: decode +600 ns)"),
        ((700, 100), {"line": 4}, "data loading -600 ns per step (in train.py: decode -600 ns)"),
        ((100, 700), {"sampled": False}, "data loading +600 ns per step (in train.py: decode +600 ns)"),
        ((700, 100), {"sampled": False}, "data loading -600 ns per step (in enumerate"),
    ],
    ids=["slower", "faster", "a bound", "not known"],
)
def test_a_slower_loader_is_named_with_its_function(
    tracekit: Tracekit, store: Store, lengths: tuple[int, int], base: dict[str, Any], expected: str
) -> None:
    """Functions are the same where lines were added above them."""
    loading_run(store, "run-1", lengths[0], **base)
    loading_run(store, "run-2", lengths[1])
    found = json.loads(tracekit("diff", "run-1", "run-2", "--format", "json").out)
    assert {line["name"]: (line["a_ns"], line["b_ns"]) for line in found["ledger"]["wall"]} == {
        "data loading": lengths,
        "in ops": (100, 100),
        "outside of ops": (20, 20),
    }
    text = tracekit("diff", "run-1", "run-2").out
    assert f"largest part of the change: {expected}" in " ".join(text.split()), text


def test_small_changes_of_parts_are_not_named(tracekit: Tracekit, store: Store) -> None:
    loading_run(store, "run-1", 10_000)
    loading_run(store, "run-2", 10_050)
    assert "largest part of the change" not in tracekit("diff", "run-1", "run-2").out


def test_csv_has_a_column_for_each_term(tracekit: Tracekit, traces: tuple[str, str]) -> None:
    lines = tracekit("diff", *traces, "--no-explain", "--format", "csv").out.splitlines()
    assert lines[0].startswith("op,delta_ns,base_ns,head_ns,added_ns,removed_ns,count_ns,rate_ns,")
    assert lines[1].startswith(f"aten::zero_ > aten::fill_,{15 * FILL_NS},{FILL_NS},{16 * FILL_NS},0,0,")


def test_the_terminal_names_the_verdict_first_and_the_command_keeps_its_promise(
    tracekit: Tracekit, traces: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    lines = tracekit("diff", *traces, "--no-explain").out.splitlines()
    assert lines[2].startswith("no verdict: step time")
    assert any(line.startswith("aten::zero_ > aten::fill_") and "count +16.66 µs" in line for line in lines)


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in {"src", "href"}]


@pytest.fixture
def hostile(store: Store) -> None:
    for second, size in ((1, 30), (2, 60)):
        made = host(HOSTILE, 0, size, step=1)
        make_run(
            store.path,
            meta={"run_id": f"run-{second}", "label": HOSTILE},
            host_intervals=[made],
            steps=[step(1, 0, 100)],
        )


@pytest.mark.usefixtures("hostile")
def test_html_asks_for_nothing_and_names_are_text(tracekit: Tracekit, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = tracekit("diff", "run-1", "run-2", "--format", "html", "-o", str(page))
    assert (done.code, done.out) == (0, "")
    parsed = _Tags()
    parsed.feed(page.read_text())
    assert "script" not in parsed.tags
    assert parsed.links == []
    assert "&lt;script&gt;" in page.read_text()
    assert "prefers-color-scheme: dark" in page.read_text()
    assert not re.search(r"https?://|url\(|@import", page.read_text())


@pytest.mark.usefixtures("hostile")
def test_markdown_and_terminal_show_names_as_text(tracekit: Tracekit) -> None:
    markdown = tracekit("diff", "run-1", "run-2", "--format", "markdown").out
    assert "<script>" not in markdown
    assert "\\<script\\>" in markdown
    for text in (markdown, tracekit("diff", "run-1", "run-2").out):
        assert "\x1b" not in text


@pytest.mark.slow
def test_markdown_stays_below_60_kb_and_says_what_it_left_out(tracekit: Tracekit, store: Store) -> None:
    for second in (1, 2):
        ops = [
            host(f"{number:03}" + "very_long_name_" * 30, 10 * number, 10 * number + 3 * second, step=1)
            for number in range(600)
        ]
        make_run(
            store.path,
            meta={"run_id": f"run-{second}"},
            host_intervals=ops,
            steps=[step(1, 0, 6000)],
        )
    markdown = tracekit("diff", "run-1", "run-2", "--format", "markdown", "--limit", "600").out
    assert len(markdown.encode()) < 60_000
    assert "more sections" in markdown
    assert markdown.rstrip().endswith("Reproduce:\n\n```sh\ntracekit diff run-1 run-2\n```")


@pytest.mark.slow_except(1)
@pytest.mark.parametrize("threshold", ["7%", "7", "0.07"])
def test_a_threshold_is_a_share_however_it_is_written(
    tracekit: Tracekit, traces: tuple[str, str], threshold: str
) -> None:
    done = tracekit("diff", *traces, "--no-explain", "--threshold", threshold, "--format", "json")
    assert json.loads(done.out)["design"]["theta"] == pytest.approx(0.07)


@pytest.mark.parametrize("threshold", ["0", "-3%", "soon", "nan"])
def test_an_impossible_threshold_is_refused(
    tracekit: Tracekit, traces: tuple[str, str], threshold: str
) -> None:
    assert tracekit("diff", *traces, "--threshold", threshold).code == 2


def test_a_trace_is_imported_once(tracekit: Tracekit, store: Store, traces: tuple[str, str]) -> None:
    tracekit("diff", *traces, "--no-explain")
    tracekit("diff", *traces, "--no-explain", "--by", "kernel")
    assert len(store.runs()) == 2


def test_runs_in_which_nothing_was_recorded_are_an_error(tracekit: Tracekit, store: Store) -> None:
    make_run(store.path, meta={"run_id": "empty"})
    done = tracekit("diff", "empty", "empty")
    assert (done.code, done.out) == (5, "")
    assert "has neither steps nor intervals" in done.err


@pytest.mark.slow_except(1)
@pytest.mark.parametrize(("places", "doubted"), [((0, 1, 2, 3), True), ((0, 2, 1, 3), False)])
def test_sides_that_were_not_alternated_are_doubted(
    tracekit: Tracekit, store: Store, places: tuple[int, ...], doubted: bool
) -> None:
    for label, seconds in (("before", places[:2]), ("after", places[2:])):
        for second in seconds:
            measured(store.path, label=label, step_ns=1000 + second, second=second)
    found = json.loads(tracekit("diff", "before", "after", "--no-explain", "--format", "json").out)
    assert any("`tracekit ab` alternates them" in text for text in found["warnings"]) is doubted
    assert found["design"]["paired"] is not doubted
