"""Events in any spelling, with any members, are scanned like by the reference decoder."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scans import agrees
from tests.tiers import examples
from tracekit.ingest.kineto.scan.layout import KEYS, SLOT

OWN = [key.decode() for key in KEYS[: SLOT.args]]
ARGUMENTS = [key.decode() for key in KEYS[SLOT.args + 1 :]]
STARTS = [
    '"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 2',
    '"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 2',
    '"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pinned -> Device)", "ts": 1, "dur": 2',
    '"ph": "i", "name": "[memory]", "ts": 1',
    '"ph": "C", "name": "power", "ts": 1',
    '"ph": "s"',
]
VALUES = [
    *("null", "true", "0", "-0", "7", "-7", "1.5", "1.000", "1.0005", "-0.0", "12.125", "1e5", "1e999"),
    *(
        "2147483648",
        "9007199254740993",
        "4611686018427387.904",
        "9223372036854775807",
        "18446744073709551615",
    ),
    *(
        "[]",
        "[1, 2]",
        "[1, 2, 3]",
        "[1, 2.0, 3]",
        "[1e999]",
        "[[2, 3], [3, 4]]",
        '{"a": [1]}',
        '{"a": 1e999}',
    ),
    *(
        '""',
        '"7"',
        '"-7"',
        '"stream 7"',
        '"a-7"',
        '"a_7"',
        '"7_0"',
        '"\u0667"',
        '"7 \u0667"',
        '"CUDA functions"',
    ),
    *('"\\u0037"', '"s\\u0037"', '"7\\u0030"', '"7\\u005f0"', '"\\/"', '"\\ud800"', '"a-123456789012345678"'),
    *('"kernel"', '"cpu\\u005fop"', '"q"', '"\\u0071"', '"[memory]"', '"\\u005bmemory]"', '"aten::m\\u006d"'),
    *('"X"', '"C"', '"i"', '"\\u0058"', '"cudaStreamSynchronize"', '"ProfilerStep#1"'),
]


def members(keys: list[str]) -> st.SearchStrategy[str]:
    """Up to a few members, some keys with their first letter escaped."""
    hidden = [f"\\u{ord(key[0]):04x}{key[1:]}" for key in keys]
    key = st.one_of(*[st.sampled_from(keys)] * 9, st.sampled_from(hidden))
    member = st.tuples(key, st.sampled_from(VALUES)).map('"{0[0]}": {0[1]}'.format)
    return st.lists(member, max_size=4).map(", ".join)


@st.composite
def events(draw: st.DrawFn) -> str:
    own, arguments = draw(members(OWN)), draw(members(ARGUMENTS))
    parts = [draw(st.sampled_from(STARTS)), own, f'"args": {{{arguments}}}']
    return "{" + ", ".join(part for part in parts if part) + "}"


@settings(derandomize=True, max_examples=examples(300), deadline=None)
@given(st.lists(events(), min_size=1, max_size=3))
def test_members_in_any_spelling_are_decoded_alike(spelled: list[str]) -> None:
    agrees(",".join(spelled).encode())


@pytest.mark.parametrize("start", STARTS)
def test_each_kind_of_event_is_scanned(start: str) -> None:
    assert agrees(f"{{{start}}}".encode())
