"""What is kept of an analysis is what computing gives, and whatever is wrong with it is computed again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib import metadata
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest

from samples.simulator import write
from tests.traces import busy_program
from tracekit import registry, storage
from tracekit.analysis import (
    Analysis,
    Basis,
    Finding,
    Remark,
    Result,
    Severity,
    analyze,
    available,
    by_rank,
    cache,
    get,
    model,
    order_by_facts,
)
from tracekit.analysis.cache import FOLDER, ResultCache
from tracekit.analysis.findings import advise, advise_cached, find_advice, gather
from tracekit.errors import PluginError
from tracekit.ingest.importer import import_traces
from tracekit.runs.devices import parse_device
from tracekit.runs.run import Run
from tracekit.runs.store import Store
from tracekit.schema import SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

NAME = "gpu_breakdown"


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("result_cache")
    (run,) = import_traces(Store(folder / "store"), [write(busy_program(), folder / "trace.json")])
    return run


@pytest.fixture
def run(imported: Run, tmp_path: Path) -> Run:
    return Run(Path(shutil.copytree(imported.path, tmp_path / "store" / imported.path.name)))


@pytest.fixture
def result_cache(run: Run) -> ResultCache:
    return ResultCache(Store(run.path.parent))


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The analyses that were computed."""
    done: list[str] = []
    before = registry.load

    def load(group: str, name: str) -> Analysis:
        found: Analysis = before(group, name)

        def compute(run: Run) -> Result:
            done.append(name)
            return found.compute(run)

        compute.__module__ = found.compute.__module__
        return Analysis(**{**vars(found), "compute": compute})

    monkeypatch.setattr(registry, "load", load)
    return done


def file(run: Run, name: str = NAME) -> Path:
    return run.path.parent / FOLDER / run.path.name / f"{name}.zip"


def is_same(first: Result, second: Result) -> bool:
    """Tell whether two results are equal: tables with their types, findings, notes and their kinds."""
    notes = [(type(note), note) for note in first.notes] == [(type(note), note) for note in second.notes]
    plain = notes and first.findings == second.findings and list(first.tables) == list(second.tables)
    pairs = zip(first.tables.values(), second.tables.values(), strict=False)
    return plain and all(a.equals(b) and list(a.dtypes) == list(b.dtypes) for a, b in pairs)


def special() -> Result:
    frame = pd.DataFrame(
        {
            "text": pd.Series(["a", None, "\u202e"], dtype=object),
            "name": pd.Series(["a", "", "a"], dtype=object),
            "none": pd.Series([None, None, None], dtype=object),
            "exact": pd.Series([2**63 - 1, None, -1], dtype="Int64"),
            "share": [0.1, np.nan, -0.0],
            "kind": pd.Categorical(["b", None, "b"], categories=["z", "b"], ordered=True),
            "small": np.array([1, 2, 3], np.int32),
            "yes": [True, False, True],
        }
    )
    finding = Finding("c", Severity.HIGH, "t", "a", 3, Basis.MEASURED, "h", 0.5, {"steps": [np.int64(7)]})
    return Result({"special": frame, "empty": frame.iloc[:0]}, (finding,), ("lacks", Remark("says")))


@pytest.mark.slow_except("gpu_breakdown", "idle_gaps", "ops")
@pytest.mark.parametrize("name", registry.names(registry.ANALYSES))
def test_every_analysis_reads_back_as_it_was_computed(
    name: str, run: Run, result_cache: ResultCache, counted: list[str]
) -> None:
    first = result_cache.analyze(run, name)
    assert file(run, name).is_file()
    kept = ResultCache(result_cache.store).analyze(run, name)
    assert counted == [name]
    assert is_same(kept, first)
    assert is_same(kept, analyze(run, name))


def test_what_a_lost_rank_leaves_incomplete_is_not_kept(
    run: Run, result_cache: ResultCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_tables = replace(special(), tables={}, incomplete=True)
    incomplete_result = replace(special(), incomplete=True)
    for computed in (without_tables, incomplete_result, special()):
        monkeypatch.setattr(cache.analysis, "analyze", lambda *_, result=computed, **__: result)
        assert result_cache.analyze(run, NAME) is computed
        assert file(run).is_file() is not computed.incomplete


def test_types_missing_values_and_kinds_of_notes_read_back(tmp_path: Path) -> None:
    assert cache.write(tmp_path / "one", "key", special())
    kept = cache.read(tmp_path / "one", "key")
    assert kept is not None
    assert is_same(kept, special())
    assert kept.tables["special"]["kind"].cat.categories.tolist() == ["z", "b"]
    assert isinstance(kept.findings[0].severity, Severity)
    assert cache.read(tmp_path / "one", "other key") is None


@pytest.mark.parametrize("value", [[1, "a"], [{1, 2}, None], ["\ud800", "b"], [1.5, None]])
def test_what_does_not_read_back_the_same_is_not_kept(tmp_path: Path, value: list[object]) -> None:
    result = Result({"t": pd.DataFrame({"x": pd.Series(value, dtype=object)})})
    try:
        kept = cache.write(tmp_path / "one", "key", result)
    except Exception:  # any, as the cache expects
        kept = False
    if kept:  # then exactly, types of the objects included
        read = cache.read(tmp_path / "one", "key")
        assert read is not None
        assert [type(one) for one in read.tables["t"]["x"]] == [type(one) for one in value]


def test_a_run_written_again_is_computed_again(
    run: Run, result_cache: ResultCache, counted: list[str]
) -> None:
    result_cache.analyze(run, NAME)
    sealed = run.path / "run.json"
    sealed.write_text(sealed.read_text().replace('"label": null', '"label": "other"', 1) + "\n")
    result_cache.analyze(Run(run.path), NAME)
    result_cache.analyze(Run(run.path), NAME)
    assert counted == [NAME, NAME]
    assert len(list(file(run).parent.glob("*.zip"))) == 1


def test_other_code_is_computed_again(
    run: Run, result_cache: ResultCache, counted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    result_cache.analyze(run, NAME)
    monkeypatch.setattr("tracekit.analysis.cache._digest", lambda place: f"changed {place}")
    result_cache.analyze(run, NAME)
    assert counted == [NAME, NAME]


@pytest.mark.parametrize("library", ["numpy", "pandas", "pyarrow", "scipy"])
def test_another_version_of_a_library_is_computed_again(
    library: str,
    run: Run,
    result_cache: ResultCache,
    counted: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result_cache.analyze(run, NAME)
    folder = f"{library}-{metadata.version(library)}.dist-info"
    others = [f"{library}-0.0.0.dist-info" if name == folder else name for name in cache._installed()]
    assert others != cache._installed()
    monkeypatch.setattr(cache, "_installed", lambda: others)
    for _ in range(2):
        result_cache.analyze(run, NAME)
    assert counted == [NAME, NAME]


def test_another_version_of_tracekit_is_computed_again(
    run: Run, result_cache: ResultCache, counted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    result_cache.analyze(run, NAME)
    monkeypatch.setattr(cache, "VERSION", "0.0.0")
    result_cache.analyze(run, NAME)
    assert counted == [NAME, NAME]


def test_another_version_of_the_schema_is_computed_again(
    run: Run, result_cache: ResultCache, counted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    result_cache.analyze(run, NAME)
    monkeypatch.setattr("tracekit.analysis.cache.SCHEMA_VERSION", SCHEMA_VERSION + 1)
    result_cache.analyze(run, NAME)
    assert counted == [NAME, NAME]


def test_a_file_of_the_code_that_changes_is_computed_again(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "limits.json").write_text('{"most": 1}')
    (package / "notes.txt").write_text("of no account")
    before = cache._digest.__wrapped__(package)
    (package / "notes.txt").write_text("still of no account")
    assert cache._digest.__wrapped__(package) == before
    (package / "limits.json").write_text('{"most": 2}')
    assert cache._digest.__wrapped__(package) != before


def test_the_code_of_analyses_by_rank_is_part_of_their_key(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []
    monkeypatch.setattr(cache, "_digest", lambda place: read.append(place) or "")
    for name in ("collectives", "ranks", "steps"):
        read.clear()
        assert cache.code_version(name)
        assert "analyses" in {place.name for place in read}


@dataclass(frozen=True)
class Answer:
    """An answer of results, with whether they are complete."""

    texts: list[str]
    complete: bool = True


def ask(result_cache: ResultCache, run: Run, asked: list[str], *names: str) -> Answer:
    """Ask for an answer, and note when it is computed."""

    def compute() -> Answer:
        asked.append("")
        return Answer([str(result_cache.analyze(run, name).findings) for name in names or (NAME,)])

    return result_cache.answer(run, names or (NAME,), ["test"], Answer, compute)


def other_meta(run: Run) -> None:
    sealed = run.path / "run.json"
    sealed.write_text(sealed.read_text().replace('"label": null', '"label": "other"', 1) + "\n")


INSTALLED = cache._installed()
PATCHES: dict[str, tuple[str, object]] = {
    "code": ("tracekit.analysis.cache._digest", lambda place: f"changed {place}"),
    "version": ("tracekit.analysis.cache.VERSION", "0.0.0"),
    "schema": ("tracekit.analysis.cache.SCHEMA_VERSION", SCHEMA_VERSION + 1),
    "pattern": ("tracekit.analysis.cache.COMMUNICATION", "mine"),
    "package": ("tracekit.analysis.cache._installed", lambda: [*INSTALLED, "new-1.0.dist-info"]),
    "entry point": (
        "tracekit.registry.find",
        lambda *_: EntryPoint(NAME, "tracekit.analyses.gpu_breakdown : ANALYSIS", ""),
    ),
}
CHANGES: dict[str, Callable[[Run], object]] = {
    "metadata": other_meta,
    "table": lambda run: os.utime(next(run.path.glob("device_intervals*")), ns=(7, 7)),
    "result": lambda run: file(run).write_bytes(b""),
}


@pytest.mark.parametrize("change", [*PATCHES, *CHANGES])
def test_an_answer_is_computed_again_after_a_change(
    change: str, run: Run, result_cache: ResultCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    right = ask(result_cache, run, asked)
    assert ask(result_cache, run, asked) == right
    assert len(asked) == 1
    if change in PATCHES:
        monkeypatch.setattr(*PATCHES[change])
    else:
        CHANGES[change](run)
    # A damaged result makes no difference: the answer does not need it.
    expected = 1 if change == "result" else 2
    for _ in range(2):
        assert ask(result_cache, Run(run.path), asked) == right
        assert len(asked) == expected


def test_a_damaged_answer_is_computed_again(run: Run, result_cache: ResultCache) -> None:
    asked: list[str] = []
    right = ask(result_cache, run, asked)
    (answer,) = file(run).parent.glob("_*.zip")
    whole = answer.read_bytes()
    inside = whole.index(b"texts")
    flipped = whole[:inside] + bytes([whole[inside] ^ 1]) + whole[inside + 1 :]
    for damaged in (b"", whole[:-1], whole[: len(whole) // 2], flipped):
        answer.write_bytes(damaged)
        count = len(asked)
        assert ask(result_cache, run, asked) == right
        assert ask(result_cache, run, asked) == right
        assert len(asked) == count + 1


def test_an_answer_is_of_its_names_and_words_and_of_no_other_peaks_or_ranks(
    run: Run, result_cache: ResultCache
) -> None:
    asked: list[str] = []
    for names in ((NAME,), ("steps",), (NAME, "steps"), (NAME,)):
        ask(result_cache, run, asked, *names)
    assert len(asked) == 4  # one file of these words
    for other in (run.with_peaks(parse_device("L4")), run.of_ranks(*run.ranks)):
        for _ in range(2):
            ask(result_cache, other, asked)
    assert len(asked) == 8
    for _ in range(2):
        ask(replace(result_cache, fresh=True), run, asked)
    assert len(asked) == 10


@pytest.mark.parametrize("is_complete", [True, False])
def test_an_answer_of_results_that_are_not_cached_is_not_kept(
    run: Run, result_cache: ResultCache, *, is_complete: bool
) -> None:
    if not is_complete:
        result_cache.analyze(run, NAME)
    for answer in (Answer(["1"], is_complete), Answer(["2"], is_complete)):
        assert result_cache.answer(run, [NAME], ["test"], Answer, lambda answer=answer: answer) == answer


def test_each_analysis_is_kept_apart(run: Run, result_cache: ResultCache, counted: list[str]) -> None:
    for name in ("steps", "kernels", "steps", "kernels"):
        result_cache.analyze(run, name)
    assert counted == ["steps", "kernels"]


@pytest.mark.slow
def test_given_peaks_are_part_of_the_key_of_what_uses_them(
    run: Run, result_cache: ResultCache, counted: list[str]
) -> None:
    for peaks in (None, parse_device("L4"), parse_device("L4"), parse_device("A10G"), None):
        for name in ("roofline", "steps"):
            result_cache.analyze(run.with_peaks(peaks), name)
    assert [name for name in counted if name == "steps"] == ["steps"]
    assert [name for name in counted if name == "roofline"] == ["roofline"] * 4


def test_a_table_that_changed_in_place_is_computed_again(
    run: Run, result_cache: ResultCache, counted: list[str]
) -> None:
    result_cache.analyze(run, NAME)
    table = next(run.path.glob("device_intervals*"))
    os.utime(table, ns=(7, 7))
    result_cache.analyze(run, NAME)
    assert counted == [NAME, NAME]


def test_asked_to_compute_anew_it_does_and_keeps_that(
    run: Run, result_cache: ResultCache, counted: list[str]
) -> None:
    right = result_cache.analyze(run, NAME)
    before = file(run).stat().st_ino
    again = ResultCache(result_cache.store, fresh=True).analyze(run, NAME)
    assert counted == [NAME, NAME]
    assert is_same(again, right)
    assert file(run).stat().st_ino != before
    result_cache.analyze(run, NAME)
    assert counted == [NAME, NAME]


@pytest.mark.slow_except(2)
@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("part", [0, 0.3, 0.9])
def test_a_damaged_file_is_computed_again_and_replaced(
    part: float, ends: bool, run: Run, result_cache: ResultCache, counted: list[str]
) -> None:
    right = result_cache.analyze(run, NAME)
    whole = file(run).read_bytes()
    at = int(part * len(whole))
    file(run).write_bytes(whole[:at] + (b"" if ends else bytes([whole[at] ^ 0xFF]) + whole[at + 1 :]))
    assert is_same(result_cache.analyze(run, NAME), right)
    assert is_same(result_cache.analyze(run, NAME), right)
    assert counted == [NAME, NAME]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_store_is_read_and_nothing_is_lost(
    run: Run, result_cache: ResultCache, counted: list[str]
) -> None:
    result_cache.store.path.chmod(0o500)
    try:
        found = result_cache.analyze(run, NAME)
    finally:
        result_cache.store.path.chmod(0o700)
    assert is_same(found, analyze(run, NAME))
    assert not (result_cache.store.path / FOLDER).exists()


def test_where_nothing_can_be_kept_it_is_computed(
    run: Run, result_cache: ResultCache, counted: list[str]
) -> None:
    (result_cache.store.path / FOLDER).write_text("in the way")
    assert is_same(result_cache.analyze(run, NAME), analyze(run, NAME))
    assert counted == [NAME, NAME]


def test_a_run_of_elsewhere_is_not_kept(run: Run, tmp_path: Path, counted: list[str]) -> None:
    ResultCache(Store(tmp_path / "other")).analyze(run, NAME)
    assert not (tmp_path / "other").exists()
    assert not (run.path.parent / FOLDER).exists()


def test_what_is_too_large_is_not_kept(run: Run, result_cache: ResultCache) -> None:
    ResultCache(result_cache.store, largest=10).analyze(run, NAME)
    assert [one.suffix for one in file(run).parent.iterdir()] == [".lock"]


def test_the_oldest_go_when_room_runs_out(run: Run, result_cache: ResultCache) -> None:
    for age, name in enumerate(("steps", "kernels")):
        result_cache.analyze(run, name)
        os.utime(file(run, name), ns=(age, age))
    ResultCache(
        result_cache.store, room=sum(file(run, name).stat().st_size for name in ("kernels",)) + 1
    ).analyze(run, NAME)
    assert not file(run, "steps").exists()


def test_a_failure_is_not_kept(run: Run, result_cache: ResultCache, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Run) -> Result:
        raise ZeroDivisionError

    bad = Analysis("bad", "bad", "?", "!", (), ("a test",), 1, fail)
    monkeypatch.setattr(registry, "load", lambda *_: bad)
    monkeypatch.setattr(registry, "find", lambda *_: EntryPoint("bad", f"{__name__}:bad", ""))
    for _ in range(2):
        with pytest.raises(PluginError, match="'bad' failed"):
            result_cache.analyze(run, "bad")
    assert not file(run, "bad").exists()


def test_deleting_the_run_deletes_what_is_kept_of_it(run: Run, result_cache: ResultCache) -> None:
    result_cache.analyze(run, NAME)
    result_cache.store.remove(run)
    assert result_cache.store.runs() == []
    assert list((result_cache.store.path / FOLDER).iterdir()) == []


def test_what_is_kept_is_no_table_and_no_run(run: Run, result_cache: ResultCache) -> None:
    tables = dict(run.meta.tables)
    result_cache.analyze(run, NAME)
    assert result_cache.store.runs() == [run]
    assert Run(run.path).meta.tables == tables


def allow_two_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let two missing results of a small run be worth a second process."""
    monkeypatch.setattr(cache, "MIN_AHEAD", 2)
    monkeypatch.setattr(by_rank, "MIN_ROWS_FOR_NEW", 0)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})


def test_a_second_process_computes_the_last_analyses_meanwhile(
    run: Run, result_cache: ResultCache, counted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    allow_two_processes(monkeypatch)
    last = run.path.parent / FOLDER / run.path.name / "steps.zip"
    with result_cache.compute_ahead(run, [NAME, "steps"]):
        until = time.monotonic() + 120
        while not last.exists() and time.monotonic() < until:
            time.sleep(0.01)
        result = result_cache.analyze(run, "steps")
    assert counted == []
    assert is_same(result, analyze(run, "steps"))


def test_analyses_that_share_facts_follow_each_other() -> None:
    def rows(_run: Run) -> None: ...
    def parents(_run: Run) -> None: ...
    def modules(_run: Run) -> None: ...

    shares = {
        "none": (),
        "of modules": (modules,),
        "of rows": (rows,),
        "of parents": (parents,),
        "of both": (rows, parents),
        "other of rows": (rows,),
    }
    analyses = [
        replace(get(NAME), name=name, order=order, shares=facts)
        for order, (name, facts) in enumerate(shares.items())
    ]
    ordered = [analysis.name for analysis in order_by_facts(analyses)]
    assert ordered == ["of both", "other of rows", "of rows", "of parents", "of modules", "none"]
    assert order_by_facts([]) == []


def test_the_order_of_results_does_not_change_the_advice(run: Run) -> None:
    results = [(analysis, analyze(run, analysis.name)) for analysis in available()]
    first, second = (gather(run, ordered) for ordered in (results, results[::-1]))
    assert first == second
    assert first.unseen


def test_a_new_process_of_a_server_computes_what_is_missing(
    run: Run, result_cache: ResultCache, counted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    allow_two_processes(monkeypatch)
    with result_cache.compute_ahead(run, ["integrity", "steps"], forks=False) as process:
        assert process is not None
        process.join(120)
        results = [result_cache.analyze(run, name) for name in ("integrity", "steps")]
    assert counted == []
    assert is_same(results[1], analyze(run, "steps"))


def test_the_process_of_a_server_ends_with_the_advice(
    run: Run, result_cache: ResultCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow_two_processes(monkeypatch)
    with result_cache.compute_ahead(run, finish=advise_cached) as process:
        assert process is not None
        process.join(120)
    shown = find_advice(result_cache, run, lambda: pytest.fail("it is not cached"))
    assert shown == advise(run, by=result_cache.analyze)


def test_without_a_second_process_the_first_computes_all(
    run: Run, result_cache: ResultCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> int:
        raise BlockingIOError("no more processes")

    allow_two_processes(monkeypatch)
    monkeypatch.setattr("os.fork", refuse)
    with result_cache.compute_ahead(run, [NAME, "steps"]):
        assert is_same(result_cache.analyze(run, "steps"), analyze(run, "steps"))


@pytest.mark.parametrize(
    ("rows", "cores", "forks", "memory", "is_worth"),
    [
        (0, 2, True, 0, False),
        (1, 2, True, 0, True),
        (4_999, 2, False, 0, False),
        (5_000, 2, False, 0, True),
        (6_000_000, 2, True, 0, True),
        (6_000_001, 2, True, 1_600 * 6_000_001 - 1, False),
        (6_000_001, 2, True, 1_600 * 6_000_001, True),
        (5_000, 1, True, 1 << 40, False),
    ],
)
def test_a_second_process_is_started_where_it_saves_time_and_both_fit_memory(
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    rows: int,
    cores: int,
    memory: int,
    *,
    forks: bool,
    is_worth: bool,
) -> None:
    monkeypatch.setattr(by_rank, "_count_rows", lambda run: rows)
    monkeypatch.setattr(by_rank, "_available_memory", lambda: memory)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)))
    assert by_rank.is_worth_two_processes(run, forks=forks) is is_worth
    assert not by_rank.is_worth_two_processes(run.of_ranks(*run.ranks))
    assert not by_rank.is_worth_two_processes(Run(storage.parse("s3://bucket/runs") / run.id))


def test_facts_of_many_rows_stay_in_memory_where_two_processes_have_room(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_rows, (rank,) = by_rank._count_rows(run), run.ranks
    for module in (model, by_rank):
        monkeypatch.setattr(module, "MAX_SHARED_ROWS", 10)
    for left, is_kept in ((1_600 * all_rows, True), (1_600 * all_rows - 1, False)):
        monkeypatch.setattr(by_rank, "_available_memory", lambda left=left: left)
        opened = Run(run.path)
        assert not model.is_shared(opened)  # as in a server
        by_rank.keep_facts(opened)
        assert model.is_shared(opened) is is_kept
        assert model.is_shared(opened.with_peaks(parse_device("H100 SXM"))) is is_kept
        assert not model.is_shared(opened.of_ranks(rank))


def test_control_groups_limit_what_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [tmp_path / name for name in ("first", "other", "unlimited", "missing")]
    monkeypatch.setattr(
        "tracekit.recording.agent.cpu_load.control_groups",
        lambda controller: folders if controller == "memory" else [],
    )
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=1000))
    files = {
        "first/memory.max": "900",
        "first/memory.current": "500",
        "first/memory.stat": "anon 400\ninactive_file 60\n",
        "other/memory.limit_in_bytes": "1000",
        "other/memory.usage_in_bytes": "700",
        "other/memory.stat": "total_inactive_file 100\n",
        "unlimited/memory.max": "max",
        "unlimited/memory.current": "999999",
        "unlimited/memory.stat": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    lefts = []
    while folders:
        lefts.append(by_rank._available_memory())
        folders.remove(folders[1] if len(folders) > 3 else folders[0])
    assert lefts == [400, 460, 1000, 1000]


@pytest.mark.parametrize(("fresh", "names"), [(True, [NAME, "steps"]), (False, [NAME])])
def test_no_second_process_for_few_results_or_fresh_ones(
    run: Run, result_cache: ResultCache, monkeypatch: pytest.MonkeyPatch, names: list[str], *, fresh: bool
) -> None:
    allow_two_processes(monkeypatch)
    monkeypatch.setattr("multiprocessing.get_context", None)
    with replace(result_cache, fresh=fresh).compute_ahead(run, names):
        pass


@pytest.mark.parametrize("place", ["elsewhere", "read-only"])
def test_no_second_process_where_no_result_can_be_cached(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    allow_two_processes(monkeypatch)
    monkeypatch.setattr("multiprocessing.get_context", None)
    store = Store(tmp_path / "other") if place == "elsewhere" else Store(run.path.parent)
    if place == "read-only":
        (run.path.parent / FOLDER).write_text("")  # no folder can be made
    with ResultCache(store).compute_ahead(run, [NAME, "steps"]):
        pass


_TWO = """
import sys
from pathlib import Path
from tracekit import analysis
from tracekit.analysis.cache import ResultCache
from tracekit.runs.store import Store
store = Store(Path(sys.argv[1]))
real = analysis.analyze
def reported(run, name, workers=None):
    print("computed", flush=True)
    return real(run, name, workers=workers)
analysis.analyze = reported
sys.stdin.readline()
print(len(ResultCache(store).analyze(store.runs()[0], sys.argv[2]).tables))
"""


def test_two_at_once_compute_once(run: Run, result_cache: ResultCache, counted: list[str]) -> None:
    with ThreadPoolExecutor(4) as threads:  # each opens the lock file for itself, as processes do
        found = list(
            threads.map(lambda _: ResultCache(result_cache.store).analyze(run, "idle_gaps"), range(4))
        )
    assert counted == ["idle_gaps"]
    assert all(is_same(one, found[0]) for one in found)


@pytest.mark.slow
def test_two_processes_at_once_compute_once(run: Run, started: Callable[..., subprocess.Popen[str]]) -> None:
    both = [started(str(run.path.parent), "idle_gaps") for _ in range(4)]
    for one in both:
        assert one.stdin is not None
        one.stdin.write("\n")
        one.stdin.flush()
    reported = [one.communicate()[0].split() for one in both]
    assert sum(words.count("computed") for words in reported) == 1
    assert len({words[-1] for words in reported}) == 1


@pytest.fixture
def started() -> Callable[..., subprocess.Popen[str]]:
    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", _TWO, *arguments]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    return start
