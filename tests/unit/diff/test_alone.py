"""Names of work that only one side has are listed whole, matched or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given

from tests.unit.diff.test_laws import compared, few, programs
from tests.unit.diff.test_matching import MM, built
from tracekit.diff import Options, diff
from tracekit.diff.breakdowns import OneSided

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from tests.unit.diff.test_matching import Launch


def test_names_of_one_side_are_listed_with_what_took_their_place(tmp_path: Path) -> None:
    before: list[Launch] = [(MM, "[[8]]", "ampere_gemm", 10), (("aten::x",), None, "gone", 7)]
    after: list[Launch] = [
        (MM, "[[8]]", "volta_gemm", 12),
        (MM, "[[8]]", "volta_gemm", 12),
        (("aten::y",), None, "Memcpy new", 3),
    ]
    runs = [built(tmp_path / name, launches) for name, launches in (("a", before), ("b", after))]
    found = diff([runs[0]], [runs[1]], options=Options(explain=False))
    assert found.only_base == (
        OneSided("ampere_gemm", "kernel", "gemm", 1, 10, 10, ("volta_gemm",)),
        OneSided("gone", "kernel", "other", 1, 7, 0, ()),
    )
    assert found.only_head == (
        OneSided("volta_gemm", "kernel", "gemm", 2, 24, 24, ("ampere_gemm",)),
        OneSided("Memcpy unknown (unknown to unknown)", "memcpy", "copy", 1, 3, 0, ()),
    )


@pytest.mark.slow
@few
@given(programs, programs)
def test_what_is_added_or_removed_is_of_one_side_or_of_a_name_both_have(a: Any, b: Any) -> None:
    there, back = compared(a, b), compared(b, a)
    assert (there.only_base, there.only_head) == (back.only_head, back.only_base)
    assert there.work is not None
    for alone, whole in (
        (there.only_base, there.work.terms.removed),
        (there.only_head, there.work.terms.added),
    ):
        assert sum(one.total_ns - one.matched_ns for one in alone) <= whole
    assert not {one.name for one in there.only_base} & {one.name for one in there.only_head}
