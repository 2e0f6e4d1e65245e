from __future__ import annotations

import pandas as pd
from tracekit.dashboards.figures.axis import MAX_BARS, keep_extremes


def test_a_few_rows_are_all_shown() -> None:
    frame = pd.DataFrame({"rank": range(MAX_BARS), "ns": range(MAX_BARS)})
    shown, words = keep_extremes(frame, frame["ns"], "time")
    assert (len(shown), words) == (MAX_BARS, "")


def test_the_one_that_stands_out_is_shown_whatever_its_place_and_order_stays() -> None:
    frame = pd.DataFrame({"rank": range(256), "ns": [5] * 256})
    frame.loc[17, "ns"], frame.loc[200, "ns"] = 9, 1
    shown, words = keep_extremes(frame, frame["ns"], "time")
    ranks = shown["rank"].tolist()
    assert {17, 200} <= set(ranks)
    assert ranks == sorted(set(ranks))
    assert len(ranks) == MAX_BARS
    assert "of 256" in words


def test_of_equal_rows_each_is_shown_once_and_the_first_of_them() -> None:
    frame = pd.DataFrame({"rank": range(100), "ns": [5] * 100})
    assert keep_extremes(frame, frame["ns"], "time")[0]["rank"].tolist() == list(range(MAX_BARS))
