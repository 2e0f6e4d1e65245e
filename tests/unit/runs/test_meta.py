from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runs import make_meta
from tests.tiers import examples
from tracekit.errors import UnusableInputError
from tracekit.runs import meta as run_meta
from tracekit.runs.meta import Diagnostic, Git, Level, TableFile, Timings
from tracekit.schema import SCHEMA_VERSION

if TYPE_CHECKING:
    from pathlib import Path


def test_metadata_survives_a_round_trip(tmp_path: Path) -> None:
    meta = make_meta(
        label="mine",
        workload={"name": "resnet50", "batch_size": 8},
        command=["tracekit", "collect"],
        git=Git("a" * 40, "b" * 40, None, True, "c" * 64, "2026-11-21T03:15:00+00:00"),
        timings=Timings([2**60, 1], [], "perf_counter"),
        tables={"steps": TableFile(1, 2, "d" * 64)},
        diagnostics=[Diagnostic(Level.WARN, "cut", "the trace ends early")],
    )
    run_meta.write(tmp_path, meta)
    assert run_meta.read(tmp_path) == meta


texts = st.text(max_size=9)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


@settings(derandomize=True, max_examples=examples(50))
@given(
    workload=st.dictionaries(texts, values, max_size=3),
    label=st.none() | texts,
    command=st.lists(texts, max_size=3),
    layout=st.sampled_from([{"indent": 2}, {"indent": None}, {"indent": "\t", "ensure_ascii": False}]),
    data=st.data(),
)
def test_a_seal_holds_for_every_field_and_any_white_space(
    workload: dict[str, Any],
    label: str | None,
    command: list[str],
    layout: dict[str, Any],
    data: st.DataObject,
) -> None:
    encoded = run_meta.encode(make_meta(workload=workload, label=label, command=command))
    assert run_meta.is_as_sealed(encoded) is True
    content = json.loads(encoded)
    assert run_meta.is_as_sealed(json.dumps(content, **layout).encode()) is True
    changed = data.draw(st.sampled_from(sorted(content)))
    other = data.draw(values.filter(lambda value: json.dumps(value) != json.dumps(content[changed])))
    written = json.dumps({**content, changed: other}, **layout).encode()
    assert run_meta.is_as_sealed(written) is False
    if changed != "seal":
        del content[changed]
        assert run_meta.is_as_sealed(json.dumps(content, **layout).encode()) is False


def test_seals_of_the_version_before_hold() -> None:
    """The digest is of the indented text; here of a file written before white space was ignored."""
    text = '{\n  "run_id": "a",\n  "seal": "SEAL"\n}\n'
    seal = hashlib.sha256(text.replace("SEAL", "").encode()).hexdigest()
    assert run_meta.is_as_sealed(text.replace("SEAL", seal).encode()) is True


@pytest.mark.parametrize(
    ("change", "next_step"), [(1, "upgrade tracekit"), (-1, "import the trace again with `tracekit import`")]
)
def test_another_schema_version_is_refused_with_the_next_step(
    tmp_path: Path, change: int, next_step: str
) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"schema_version": SCHEMA_VERSION + change}))
    with pytest.raises(UnusableInputError, match="has schema version") as caught:
        run_meta.read(tmp_path)
    assert caught.value.hint == next_step


@pytest.mark.parametrize("place", ["t0_unix_ns", "step_ns", "rows"])
@pytest.mark.parametrize("number", [1 << 63, -(10**30)])
def test_a_number_that_no_column_can_hold_is_damage(tmp_path: Path, place: str, number: int) -> None:
    meta = make_meta(timings=Timings([1], [], "perf_counter"), tables={"steps": TableFile(1, 2, "d" * 64)})
    run_meta.write(tmp_path, meta)
    reported = json.loads((tmp_path / "run.json").read_text())
    {"step_ns": reported["timings"], "rows": reported["tables"]["steps"]}.get(place, reported)[place] = (
        [number] if place == "step_ns" else number
    )
    (tmp_path / "run.json").write_text(json.dumps(reported))
    with pytest.raises(UnusableInputError, match=f"is damaged: .*{place}"):
        run_meta.read(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "is not a run"),
        ("", "is not a run"),
        ("[]", "is not a run"),
        (f'{{"schema_version": {SCHEMA_VERSION}}}', "is damaged.*run_id"),
    ],
)
def test_what_is_no_metadata_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "run.json").write_text(text)
    with pytest.raises(UnusableInputError, match=message):
        run_meta.read(tmp_path)


def test_metadata_beyond_the_limit_is_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_meta.write(tmp_path, make_meta())
    assert run_meta.read(tmp_path).run_id
    monkeypatch.setattr(run_meta, "MAX_BYTES", 100)
    with pytest.raises(UnusableInputError, match=r"is not a run: run.json has more than"):
        run_meta.read(tmp_path)


def test_diagnostics_of_many_traces_are_combined() -> None:
    many = [Diagnostic(Level.WARN, "cut", f"{rank}.json: ends early") for rank in range(9)]
    (combined,) = run_meta.combine_diagnostics(many)
    assert combined.message == "9 traces, 0.json to 8.json: ends early"
    assert run_meta.combine_diagnostics(many[:8]) == many[:8]


@pytest.mark.parametrize("gpus", ["true", '["H100", {"name": "H100"}]'])
def test_gpus_that_are_no_objects_are_left_out(tmp_path: Path, gpus: str) -> None:
    run_meta.write(tmp_path, make_meta(environment={"gpus": [{"name": "A100"}]}))
    file = tmp_path / "run.json"
    file.write_text(re.sub(r'"gpus": *\[[^]]*\]', f'"gpus": {gpus}', file.read_text()))
    assert run_meta.read(tmp_path).environment["gpus"] == ([{"name": "H100"}] if "H100" in gpus else [])
