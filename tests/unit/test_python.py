"""The functions of `import tracekit`: arguments, errors of other arguments, and how results print."""

from __future__ import annotations

import importlib
import inspect
import pickle
import pydoc
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import pytest

import tracekit
from tests.runs import make_run, step_rows
from tracekit import analysis
from tracekit.errors import PluginError, RunNotFoundError, TracekitError, UnknownNameError, UnusableInputError
from tracekit.schema import C

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.shared_runs import SharedRuns
    from tracekit.runs.run import Run
    from tracekit.runs.store import Store

TRACE = Path(__file__).parents[2] / "samples/simulated/training.json.gz"
PUBLIC = [
    *("analyze", "check", "compare", "diff", "export", "findings", "import_", "open", "query", "record"),
    *("report", "runs", "step"),
]


@pytest.fixture
def run(store: Store) -> Run:
    return make_run(store, label="base", tables={"steps": step_rows(0, 20)})


@pytest.fixture
def place(store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The store, which the environment names."""
    monkeypatch.setenv("TRACEKIT_STORE", str(store.path))
    return store


@pytest.fixture
def traced(shared_runs: SharedRuns) -> Run:
    return shared_runs.of(TRACE)


def test_only_public_names_are_listed() -> None:
    assert dir(tracekit) == sorted(["__version__", *PUBLIC])
    assert all(callable(getattr(tracekit, name)) for name in PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_help_tells_arguments_errors_and_an_example(name: str) -> None:
    function = getattr(tracekit, name)
    text = pydoc.render_doc(function, renderer=pydoc.plaintext)
    assert text.startswith(f"Python Library Documentation: function {name} in ")
    assert "Example:" in text
    sections, given = text.split("    Args:")[-1], inspect.signature(function).parameters
    assert [one for one in given if f"        {one}: " not in sections] == []
    assert ("Raises:" in text) == bool(given)


def test_functions_stay_functions_beside_packages_of_the_same_names() -> None:
    code = (
        "import tracekit; before = tracekit.runs, tracekit.diff\n"
        "import tracekit.runs.store as store, tracekit.diff.model\n"
        "assert (tracekit.runs, tracekit.diff) == before\n"
        "assert tracekit.runs.store is store and tracekit.diff.model.Diff is tracekit.diff.Diff\n"
        "from tracekit.runs import meta\n"
        "from tracekit.diff import diff\n"
        "assert diff is not tracekit.diff and tracekit.runs.meta is meta"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert pickle.loads(pickle.dumps(tracekit.diff)) is tracekit.diff  # noqa: S301 (made here)
    assert importlib.import_module("tracekit.runs").__name__ == "tracekit.runs"


@pytest.mark.parametrize(
    ("table", "hint"),
    [
        ("step", "did you mean steps?"),
        ("device_interval", "did you mean device_intervals?"),
        ("nothing like it", "known: device_intervals, host_intervals, steps"),
    ],
)
def test_an_unknown_table_names_the_nearest(run: Run, table: str, hint: str) -> None:
    for read in (run.table, run.arrow, run.rows, run.dataset, run.of_ranks(0).rows, run.of_ranks(0).table):
        with pytest.raises(UnknownNameError) as error:
            read(table)
        assert error.value.message == f"unknown table: {table!r}"
        assert error.value.hint.startswith(hint)


@pytest.mark.parametrize("tables", [{"steps": step_rows(0)}, {"steps": []}], ids=["rows", "no rows"])
def test_an_unknown_column_names_the_nearest(store: Store, tables: dict[str, Any]) -> None:
    run = make_run(store, tables=tables)
    with pytest.raises(UnknownNameError, match=r"unknown column of table steps: 'dur'.*did you mean dur_ns"):
        run.table("steps", columns=["dur"])
    with pytest.raises(UnusableInputError, match=r"unknown column of table steps: 'Q' \(known: rank, step,"):
        run.arrow("steps", columns=["rank", "Q"])


def test_an_unknown_column_of_a_filter_names_the_nearest(run: Run) -> None:
    for where in (pc.field("ranks") == 0, (pc.field(C.STEP) > 0) & (pc.field("ranks") == 0)):
        with pytest.raises(UnknownNameError, match=r"unknown column of table steps: 'ranks'.*mean rank"):
            run.table("steps", where=where, window=(0, 9))


def test_a_filter_of_another_type_is_not_taken_for_damage(run: Run) -> None:
    with pytest.raises(UnusableInputError, match="does not suit table steps") as error:
        run.table("steps", where=pc.field(C.STEP) == "three")
    assert "verify" not in str(error.value)


def test_a_filter_does_not_hide_damage(run: Run) -> None:
    (run.path / "steps.parquet").write_bytes(b"no parquet")
    with pytest.raises(UnusableInputError, match=r"cannot be read.*tracekit verify"):
        run.table("steps", where=pc.field(C.STEP) == 3)


def test_an_unknown_table_of_a_result_names_the_nearest(traced: Run) -> None:
    result = tracekit.analyze(traced, "gpu_breakdown")
    with pytest.raises(UnknownNameError, match=r"'hole' \(did you mean whole\?\)"):
        result.tables["hole"]
    with pytest.raises(KeyError):
        result.tables["hole"]
    assert result.tables.get("hole") is None
    assert pickle.loads(pickle.dumps(result)).tables.keys() == result.tables.keys()  # noqa: S301 (made here)


def test_an_unknown_analysis_names_the_nearest(run: Run) -> None:
    with pytest.raises(PluginError, match="did you mean kernels"):
        tracekit.analyze(run, "kernel")


def test_runs_are_given_by_reference_or_path(run: Run, place: Store) -> None:
    expected = tracekit.analyze(run, "steps").tables["summary"]
    for reference in (run, "latest", run.id, "base", str(run.path), Path(run.path)):
        assert tracekit.analyze(reference, "steps").tables["summary"].equals(expected)
    assert tracekit.open(Path(run.path)).id == tracekit.open("base").id == run.id


def test_a_path_is_no_label(run: Run, place: Store) -> None:
    with pytest.raises(RunNotFoundError):
        tracekit.open(Path("base"))


def test_a_trace_is_analyzed_by_its_path(tmp_path: Path, place: Store) -> None:
    trace = Path(shutil.copy(TRACE, tmp_path))
    result = tracekit.analyze(trace, "ops", store=place.path)
    assert len(result.tables["ops"])
    assert [run.id for run in tracekit.runs()] == [tracekit.open(trace).id]


def test_runs_are_listed_by_label(run: Run, place: Store) -> None:
    other = make_run(place, after_s=9, label="head")
    assert [each.id for each in tracekit.runs()] == [run.id, other.id]
    assert [each.id for each in tracekit.runs(label="head", store=place.path)] == [other.id]


def test_traces_are_imported(tmp_path: Path, store: Store) -> None:
    trace = Path(shutil.copy(TRACE, tmp_path))
    (found,) = tracekit.import_(trace, label="mine", store=store.path)
    assert (found.meta.label, found.path.parent) == ("mine", store.path)
    with pytest.raises(UnusableInputError, match=r"absent\.json"):
        tracekit.import_(tmp_path / "absent.json", trace, store=store.path)
    assert len(tracekit.runs(store=store.path)) == 2


@pytest.mark.slow
def test_sides_of_a_diff_are_runs_or_references(traced: Run, tmp_path: Path) -> None:
    store = tmp_path / "store"
    found = tracekit.diff(traced.path, [traced], by="kernel", store=store)
    assert found.base.runs == found.head.runs == (traced.id,)
    assert (found.by, found.base.reference) == ("kernel", str(traced.path))
    assert found.work is not None
    assert (found.work.residual, found.work.terms.delta) == (0, 0)
    with pytest.raises(UnusableInputError, match="unknown field"):
        tracekit.diff(traced, traced, varying=["colour"], store=store)


def calls(run: Run) -> dict[str, Callable[[], object]]:
    """Calls with an argument of a wrong type, by what the error starts with."""
    wrong: Any = 3
    return {
        "reference must be a Run, a reference to one (str) such as 'latest'": lambda: tracekit.open(wrong),
        "run must be a Run, a reference": lambda: tracekit.analyze(wrong, "ops"),
        "name must be the name of an analysis (str), such as 'ops', not 3 (int)": lambda: tracekit.analyze(
            run, wrong
        ),
        "store must be a path or an address": lambda: tracekit.runs(store=wrong),
        "label must be a str": lambda: tracekit.runs(label=wrong),
        "a path of import_ must be": lambda: tracekit.import_(wrong),
        "import_ takes at least one path": tracekit.import_,
        "base must be a Run": lambda: tracekit.diff(wrong, run),
        "head must be a list of runs": lambda: tracekit.diff(run, [wrong]),
        "varying must be a list": lambda: tracekit.diff(run, run, varying="torch"),
        "head must be a Run, ": lambda: tracekit.compare(run, wrong, "ops"),
        "name must be the name of an analysis": lambda: tracekit.findings(run, wrong),
        "start_step must be a number": lambda: tracekit.record(start_step="3"),  # type: ignore[arg-type]
        "steps must be a number": lambda: tracekit.record(steps=2.5),  # type: ignore[arg-type]
        "name must be the name of a table": lambda: run.table(wrong),
        "columns must be a list of names of columns": lambda: run.table("steps", columns="rank"),
        "columns must be a list": lambda: run.table("steps", columns=[wrong]),
        "where must be an expression": lambda: run.table("steps", where="rank == 0"),  # type: ignore[arg-type]
        "window must be (start, end) in integer nanoseconds": lambda: run.table("steps", window=wrong),
        "window must be (start, end)": lambda: run.table("steps", window=(0.5, 1)),  # type: ignore[arg-type]
        "a rank must be an integer": lambda: run.of_ranks("0"),  # type: ignore[arg-type]
    }


def test_an_argument_of_a_wrong_type_is_told_what_is_wanted(run: Run, place: Store) -> None:
    for start, call in calls(run).items():
        with pytest.raises(TypeError) as error:
            call()
        assert str(error.value).startswith(start)


def test_runs_print_readably(run: Run, traced: Run, tmp_path: Path) -> None:
    assert repr(run) == f"<Run {run.id}: label 'base', 2 steps>"
    assert repr(run.of_ranks(0)) == f"<Run {run.id}: label 'base', 2 steps, of which rank 0>"
    assert f"{traced.rows('device_intervals'):,} device intervals" in repr(traced)
    assert repr(type(run)(tmp_path)) == f"<Run at {tmp_path}: not readable>"


def test_results_and_findings_print_readably(traced: Run) -> None:
    result = tracekit.analyze(traced, "gpu_breakdown")
    assert repr(result).startswith("<Result: whole (1 row), ")
    assert "DataFrame" not in repr(result)
    found = tracekit.findings(traced.path, "idle_gaps", "small_kernels", "launch_config")
    assert found
    for finding in found:
        assert repr(finding).startswith(f"<Finding {finding.severity} {finding.code}: {finding.title}")
        assert ("; saves" in repr(finding)) == (finding.saving_ns_per_step is not None)
    assert isinstance(found[0], analysis.Finding)


def test_recordings_print_readably(store: Store) -> None:
    assert repr(tracekit.record("mine", store=store.path)) == "<Record 'mine': not started>"


def test_rows_of_a_query_are_exact_integers(run: Run, place: Store) -> None:
    rows = tracekit.query("SELECT step, dur_ns, NULL::BIGINT AS none FROM steps ORDER BY step", run)
    assert rows["dur_ns"].tolist() == run.table("steps")[C.DUR_NS].tolist()
    assert list(map(str, rows.dtypes)) == ["int64", "int64", "Int64"]
    large = "SELECT unnest([1152921504606846977, NULL]) AS a, 18446744073709551615::UBIGINT AS b, [1] AS c"
    rows = tracekit.query(f"{large}, INTERVAL 1 DAY AS d", run)
    assert rows["a"].iloc[0] == (1 << 60) + 1
    assert (rows["b"].iloc[0], rows["c"].iloc[0], rows["d"].iloc[0]) == ((1 << 64) - 1, [1], "1 day, 0:00:00")
    with pytest.raises(TracekitError, match="no_such"):
        tracekit.query("SELECT no_such FROM steps")


def test_a_run_is_exported_and_reported_to_a_path(traced: Run, place: Store, tmp_path: Path) -> None:
    path = tracekit.export(traced, tmp_path / "trace.json", steps="1")
    assert path == tmp_path / "trace.json"
    assert path.read_text().startswith('{"traceEvents": [')
    with pytest.raises(UnusableInputError, match="unknown target 'perfeto'"):
        tracekit.export(traced, path, to="perfeto")
    page = tracekit.report(traced, tmp_path, analyses=["steps"], title="Mine")
    assert page == tmp_path / f"{traced.id}.html"
    assert "<title>Mine" in page.read_text()
    with pytest.raises(PluginError, match="did you mean kernels"):
        tracekit.report(traced, tmp_path, analyses=["kernel"])


def test_runs_are_checked_against_a_label(run: Run, place: Store) -> None:
    result = tracekit.check("label:none", run)
    assert str(result.verdict) == "no baseline"
    with pytest.raises(TypeError, match="threshold"):
        tracekit.check("label:none", run, threshold="5%")  # type: ignore[arg-type]


def test_a_difference_prints_in_a_few_lines(traced: Run) -> None:
    found = tracekit.diff(traced, traced)
    text = repr(found)
    assert text.startswith(f"<Diff of {traced.id} against {traced.id}: {found.verdict}")
    assert len(text.splitlines()) < 30
    assert text.endswith(">")


def test_missing_analyses_are_an_error_and_not_no_advice(
    traced: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(analysis.registry, "names", lambda _: [])
    with pytest.raises(PluginError, match="no analysis can be loaded"):
        tracekit.findings(traced)


def test_the_module_is_the_command() -> None:
    command = [sys.executable, "-m", "tracekit", "--version"]
    assert tracekit.__version__ in subprocess.run(command, capture_output=True, text=True, check=True).stdout
