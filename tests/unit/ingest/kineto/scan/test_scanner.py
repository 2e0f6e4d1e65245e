"""The compiled scanner equals the reference decoder, and accepts usual events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import samples
from tests.scans import agrees, chunks_of, main, reduced, scanner, text_of
from tests.tiers import examples
from tests.unit.ingest.kineto.scan.events import (
    COUNTER,
    EVENTS,
    FLOW,
    KERNEL,
    MEMORY,
    OP,
    changed,
    text,
)

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
        pytest.param(changed(OP, tid="a-12345678901234567"), id="a lane of 17 digits and a sign"),
        pytest.param({**FLOW, "args": {"grid": "text", "deep": [[{"a": [{}]}]]}}, id="unusual, but no row"),
    ],
)
def test_less_usual_events_are_scanned(event: dict[str, Any]) -> None:
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
        pytest.param(text(OP).replace(b"aten::mm", b"aten::m\\u006d"), id="a counted op after an escape"),
        pytest.param(text(OP).replace(b"aten::mm", b"\\ud83d"), id="half a surrogate pair"),
        pytest.param(text(OP).replace(b"aten::mm", b"\xff"), id="no UTF-8"),
        pytest.param(text(OP).replace(b"aten::mm", b"a\x01"), id="a control character"),
        pytest.param(text(OP).replace(b"63.5", b"063.5"), id="a leading zero"),
        pytest.param(text(OP) + b",", id="a comma too many"),
        pytest.param(text(OP)[:-1], id="no end"),
        pytest.param(text(OP) + text(OP), id="no comma"),
        pytest.param(b'{"ph": "X", "name": "old", "pid": "CUDA functions", "ts": 1, "dur": 1}', id="legacy"),
        pytest.param(text({**FLOW, "args": "words"}), id="arguments that are none"),
        pytest.param(text(OP).replace(b'"dur"', b'"\\u0074s": 3, "dur"'), id="a key after an escape"),
        pytest.param(text(OP).replace(b'"Ev Idx"', b'"External\\u0020id"'), id="an argument after an escape"),
        pytest.param(text(OP).replace(b"cpu_op", b"cpu\\u005fop"), id="a category after an escape"),
        pytest.param(text(MEMORY).replace(b"[mem", b"\\u005bmem"), id="a memory event after an escape"),
        pytest.param(text(OP).replace(b'"tid": 8', b'"tid": "s \\u0037"'), id="a lane after an escape"),
        pytest.param(text(OP).replace(b'"tid": 8', b'"tid": "1\\u0030"'), id="half a lane after an escape"),
        pytest.param(text(changed(OP, tid="a-123456789012345678")), id="a lane of 18 digits and a sign"),
        pytest.param(text(COUNTER).replace(b"71.5", b"1e999"), id="a counter beyond all floats"),
        pytest.param(text(COUNTER).replace(b"71.5", b"9" * 5000), id="a counter of too many digits"),
        pytest.param(
            text(OP).replace(b": 3}", b": 1e999}") + b"," + text(COUNTER), id="beyond floats beside it"
        ),
        pytest.param(
            text({**FLOW, "args": {"grid": [1]}}).replace(b"[1]", b"[1e999]"), id="beyond floats, no row"
        ),
        pytest.param(text(changed(OP, **{"Concrete Inputs": ["x" * (17 << 20)]})), id="inputs of 17 MB"),
        pytest.param(b"[" * 100 + b"]" * 100, id="no events"),
        pytest.param(text({**FLOW, "args": {"kept": [{"id": 1}, FLOW]}}), id="an event in arguments"),
        pytest.param(text({**OP, "children": {"0": OP}}), id="an event in an event"),
    ],
)
def test_unusual_content_is_left_to_the_reference(content: bytes) -> None:
    assert scanner().scan(text_of(content)) is None


@settings(derandomize=True, max_examples=examples(400))
@given(
    st.lists(st.sampled_from(EVENTS), min_size=1, max_size=5),
    st.sampled_from([None, 1]),
    st.lists(
        st.tuples(st.floats(0, 1), st.integers(0, 8), st.sampled_from(FRAGMENTS) | st.text(max_size=2)),
        max_size=3,
    ),
)
def test_damaged_text_is_not_decoded_as_events(
    events: list[dict[str, Any]], indent: int | None, damages: list[tuple[float, int, str]]
) -> None:
    content = bytearray(text(*events, indent=indent))
    for place, removed, put in damages:
        start = int(place * len(content))
        content[start : start + removed] = put.encode("utf-8", "surrogatepass")
    agrees(bytes(content))


@settings(derandomize=True, max_examples=examples(200))
@given(st.binary(max_size=60), st.integers(0, 400))
def test_random_bytes_do_not_crash_the_scanner(noise: bytes, place: int) -> None:
    content = text(OP, KERNEL)
    agrees(content[:place] + noise + content[place:])


@pytest.mark.slow_except(3)
@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.parent.name + "/" + path.name)
def test_sample_traces_are_scanned_like_the_reference(path: Path) -> None:
    assert False not in {agrees(content) for content in chunks_of(path)}


@pytest.mark.parametrize("second", [b"null", b"[4, 5]", b"[4, 5, 6]"])
def test_the_second_of_repeated_triples_wins(second: bytes) -> None:
    content = text(KERNEL).replace(b'"block"', b'"grid": [4, 5], "grid": ' + second + b', "block"')
    assert agrees(content) == (second != b"[4, 5]")


def test_a_difference_is_reduced_to_the_events_that_show_it() -> None:
    content = text(*EVENTS, KERNEL, indent=1) + b"]}"
    counter, kernel = text(COUNTER, indent=1), text(KERNEL, indent=1)
    assert reduced(content, lambda left: counter in left and kernel in left).count(b'"ph"') == 2


def test_decoders_are_compared_on_the_command_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main([str(RECORDED[0])]) == 0
    assert "0 left to the reference" in capsys.readouterr().out
    monkeypatch.setattr("tests.scans._equal", _refuse_ops)
    assert main([str(RECORDED[0])]) == 1
    assert "chunk 0 differs: {" in capsys.readouterr().out


def _refuse_ops(content: bytes, *_: object) -> None:
    assert b'"cpu_op"' not in content
