"""The terms of a difference sum to it exactly, whatever the numbers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tracekit.diff.breakdowns import NOTHING, Amount, Terms
from tracekit.diff.matching import terms

amounts = st.builds(Amount, st.integers(1, 10**7), st.integers(0, 10**15))


@given(amounts, amounts)
def test_the_terms_are_the_difference(a: Amount, b: Amount) -> None:
    assert terms(a, b).delta == b.total_ns - a.total_ns


@given(amounts, amounts)
def test_exchanging_the_sides_changes_the_sign_of_every_term(a: Amount, b: Amount) -> None:
    there, back = terms(a, b), terms(b, a)
    assert (there.count, there.rate) == (-back.count, -back.rate)


@given(amounts, st.integers(1, 10**7))
def test_more_of_the_same_is_a_count_alone(a: Amount, times: int) -> None:
    more = terms(a, Amount(times * a.count, times * a.total_ns))
    assert more == Terms(count=(times - 1) * a.total_ns)


@given(amounts, st.integers(0, 10**15))
def test_as_many_is_a_rate_alone(a: Amount, total: int) -> None:
    assert terms(a, Amount(a.count, total)) == Terms(rate=total - a.total_ns)


@given(amounts)
def test_what_one_side_has_is_added_or_removed_whole(one: Amount) -> None:
    assert terms(NOTHING, one) == Terms(added=one.total_ns)
    assert terms(one, NOTHING) == Terms(removed=one.total_ns)


def test_the_count_term_is_rounded_half_to_even() -> None:
    assert terms(Amount(1, 0), Amount(2, 1)) == Terms(count=0, rate=1)  # 1 · (0 + 1/2)/2 = 1/4
    assert terms(Amount(1, 0), Amount(2, 2)) == Terms(count=0, rate=2)  # 1/2
    assert terms(Amount(1, 0), Amount(2, 6)) == Terms(count=2, rate=4)  # 3/2
