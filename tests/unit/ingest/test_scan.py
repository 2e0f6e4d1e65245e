"""The compiled scanner equals the reference on everything that it accepts, and accepts what is usual."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import samples
from tests.scans import agrees, chunks_of, scanner, text_of
from tracekit.ingest.kineto.scan import ready

OP = {
    "ph": "X",
    "cat": "cpu_op",
    "name": "aten::mm",
    "pid": 7,
    "tid": 8,
    "ts": 1712195495519689.047,
    "dur": 63.5,
    "args": {
        "External id": 5,
        "Concrete Inputs": ["", "[1, 2]", "False"],
        "Input type": ["float", ""],
        "Input Dims": [[2, 3], [3, 4]],
        "Sequence number": 12,
        "Fwd thread id": 0,
        "Call stack": "a.py(1): f;b.py(2): g",
        "Ev Idx": 3,
    },
}
KERNEL = {
    "ph": "X",
    "cat": "kernel",
    "name": "gemm",
    "pid": 0,
    "tid": 7,
    "ts": 10.001,
    "dur": 3,
    "args": {
        "queued": 0,
        "device": 0,
        "context": 1,
        "stream": 7,
        "correlation": 44,
        "grid": [1, 2, 3],
        "block": [32, 1, 1],
        "registers per thread": 40,
        "shared memory": 1024,
        "est. achieved occupancy %": 12.5,
        "graph id": 3,
        "graph node id": 0,
    },
}
COPY = {
    "ph": "X",
    "cat": "gpu_memcpy",
    "name": "Memcpy HtoD (Pageable -> Device)",
    "pid": 0,
    "tid": 7,
    "ts": 1.5,
    "dur": 2,
    "args": {"bytes": 4096, "memory bandwidth (GB/s)": 1.25, "device": 0, "stream": 7, "External id": 0},
}
MEMORY = {
    "ph": "i",
    "s": "t",
    "name": "[memory]",
    "pid": 7,
    "tid": 8,
    "ts": 12,
    "args": {
        "Total Reserved": 0,
        "Total Allocated": 5,
        "Bytes": -512,
        "Addr": 140737488355327,
        "Device Id": -1,
    },
}
COUNTER = {"ph": "C", "name": "GPU power", "pid": 0, "ts": 4.25, "args": {"W": 71.5, "label": "x"}}
FLOW = {"ph": "s", "id": 3, "pid": 7, "tid": 8, "ts": 9, "cat": "ac2g", "name": "ac2g"}
META = {
    "ph": "M",
    "name": "process_name",
    "pid": "Spans",
    "tid": "words",
    "ts": 0,
    "args": {"name": "python"},
}
UNKNOWN = {"ph": "X", "cat": "hpu_op", "name": "x", "pid": 1, "tid": 1, "ts": 1, "dur": 1}
EVENTS: list[dict[str, Any]] = [OP, KERNEL, COPY, MEMORY, COUNTER, FLOW, META, UNKNOWN]
FRAGMENTS = [
    *(
        '"',
        "\\",
        ",",
        ":",
        "{",
        "}",
        "[",
        "]",
        " ",
        "\n",
        "null",
        "true",
        "NaN",
        "1e5",
        "-",
        "01",
        "-0",
        "1.5",
    ),
    *("1.0005", "1.0000", "-5", "9223372036854775807", "9223372036854775808", "99999999999999999999"),
    *(
        "\x00",
        "é",
        "\\u0041",
        "\\ud800",
        '"aten::m\\u006d"',
        '"stream 7"',
        '"a_7"',
        '"١"',
        "{}",
        '"args": null',
    ),
    *(
        '"ph": "C"',
        '"cat": "kernel"',
        '"name": 5',
        '"External id": 0',
        '"device": 5000000000',
        '"grid": [1, 2]',
    ),
]
RECORDED = sorted(Path(samples.__file__).parent.rglob("*.json.gz"))


def text(*events: dict[str, Any], indent: int | None = None) -> bytes:
    return b",\n".join(json.dumps(event, indent=indent, ensure_ascii=False).encode() for event in events)


def changed(event: dict[str, Any], **members: Any) -> dict[str, Any]:
    """The event with members of its own, or of its arguments, that are others."""
    own = {key: value for key, value in members.items() if key in event}
    return {**event, **own, "args": {**event["args"], **{k: v for k, v in members.items() if k not in own}}}


@pytest.mark.parametrize("indent", [None, 0, 2])
def test_usual_events_are_scanned(indent: int | None) -> None:
    assert agrees(text(*EVENTS, *EVENTS, indent=indent))


@pytest.mark.parametrize("after", [b"]", b"\n ]\n}", b'], "traceName": "x", "n": {"a": [1]}}', b"  \n"])
def test_the_end_of_the_events_is_found(after: bytes) -> None:
    assert agrees(text(*EVENTS) + after)


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(changed(OP, name='C:\\Users\\ "q" \t é'), id="escapes"),
        pytest.param(changed(OP, tid="stream 7"), id="a lane in words"),
        pytest.param(changed(OP, tid="25738", pid="-3"), id="a lane as text"),
        pytest.param(changed(OP, dur=-4), id="a negative duration"),
        pytest.param(changed(OP, dur=None), id="no duration"),
        pytest.param(changed(OP, name="cudaStreamSynchronize", cat="cuda_runtime"), id="a wait"),
        pytest.param(changed(OP, name="ProfilerStep#3"), id="an annotation of old"),
        pytest.param(changed(OP, **{"External id": None, "external id": 3}), id="an id of old"),
        pytest.param(changed(OP, **{"Input Dims": None}), id="null shapes"),
        pytest.param(changed(OP, **{"Call stack": ""}), id="an empty stack"),
        pytest.param(changed(KERNEL, device=None, stream=None), id="a device by its process"),
        pytest.param(changed(KERNEL, device=2**32 - 1), id="an impossible device"),
        pytest.param(changed(KERNEL, grid=None), id="no grid"),
        pytest.param({**FLOW, "args": {"grid": "odd", "deep": [[{"a": [{}]}]]}}, id="odd, but no row"),
    ],
)
def test_what_is_less_usual_is_scanned_too(event: dict[str, Any]) -> None:
    assert agrees(text(event, KERNEL))


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(text(changed(KERNEL, grid=[1, 2])), id="a grid of two"),
        pytest.param(text(changed(KERNEL, stream=1.5)), id="a broken stream"),
        pytest.param(text(changed(KERNEL, correlation="7")), id="a number as text"),
        pytest.param(text(changed(KERNEL, correlation=2**64 - 1)), id="64 bits"),
        pytest.param(text(changed(OP, ts="12.5")), id="a time as text"),
        pytest.param(text(changed(OP, ts=1.00005)), id="below a nanosecond"),
        pytest.param(text(changed(OP, name=5)), id="a name that is none"),
        pytest.param(text(OP).replace(b'"args": {', b'"args": {}, "args": {'), id="arguments twice"),
        pytest.param(text(OP).replace(b"}}", b'}, "args": null}'), id="arguments taken back"),
        pytest.param(text(OP).replace(b"aten::mm", b"aten::m\\u006d"), id="a counted op behind an escape"),
        pytest.param(text(OP).replace(b"aten::mm", b"\\ud83d"), id="half a surrogate pair"),
        pytest.param(text(OP).replace(b"aten::mm", b"\xff"), id="no UTF-8"),
        pytest.param(text(OP).replace(b"aten::mm", b"a\x01"), id="a control character"),
        pytest.param(text(OP).replace(b"63.5", b"063.5"), id="a leading zero"),
        pytest.param(text(OP) + b",", id="a comma too many"),
        pytest.param(text(OP)[:-1], id="no end"),
        pytest.param(text(OP) + text(OP), id="no comma"),
        pytest.param(b'{"ph": "X", "name": "old", "pid": "CUDA functions", "ts": 1, "dur": 1}', id="legacy"),
        pytest.param(text({**FLOW, "args": "words"}), id="arguments that are none"),
        pytest.param(b"[" * 100 + b"]" * 100, id="no events"),
    ],
)
def test_what_is_odd_is_left_to_the_reference(content: bytes) -> None:
    assert scanner().scan(text_of(content)) is None


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.sampled_from(EVENTS), min_size=1, max_size=5),
    st.sampled_from([None, 1]),
    st.lists(
        st.tuples(st.floats(0, 1), st.integers(0, 8), st.sampled_from(FRAGMENTS) | st.text(max_size=2)),
        max_size=3,
    ),
)
def test_damage_is_never_taken_for_an_event(
    events: list[dict[str, Any]], indent: int | None, damages: list[tuple[float, int, str]]
) -> None:
    content = bytearray(text(*events, indent=indent))
    for place, removed, put in damages:
        start = int(place * len(content))
        content[start : start + removed] = put.encode("utf-8", "surrogatepass")
    agrees(bytes(content))


@settings(max_examples=200)
@given(st.binary(max_size=60), st.integers(0, 400))
def test_bytes_of_any_kind_are_survived(noise: bytes, place: int) -> None:
    content = text(OP, KERNEL)
    agrees(content[:place] + noise + content[place:])


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.parent.name + "/" + path.name)
def test_the_project_s_own_traces_are_scanned_and_agree(path: Path) -> None:
    assert False not in {agrees(content) for content in chunks_of(path)}


def test_more_texts_than_fit_are_no_problem() -> None:
    names = [f"op {number} " + "x" * 80 for number in range(120_000)]
    content = text(*(changed(UNKNOWN | {"args": {}, "cat": "cpu_op"}, name=name) for name in names))
    assert agrees(content, by=ready.load()())


def test_a_text_too_long_for_any_table_is_left_to_the_reference() -> None:
    content = text(changed(OP, name="x" * (9 << 20)))
    assert scanner().scan(text_of(content)) is None
