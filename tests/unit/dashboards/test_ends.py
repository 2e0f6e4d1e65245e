from __future__ import annotations

import pandas as pd
from tracekit.dashboards.figures.axis import MOST, ends


def test_a_few_rows_are_all_shown() -> None:
    frame = pd.DataFrame({"rank": range(MOST), "ns": range(MOST)})
    shown, words = ends(frame, frame["ns"], "time")
    assert (len(shown), words) == (MOST, "")


def test_the_one_that_stands_out_is_shown_whatever_its_place_and_order_stays() -> None:
    frame = pd.DataFrame({"rank": range(256), "ns": [5] * 256})
    frame.loc[17, "ns"], frame.loc[200, "ns"] = 9, 1
    shown, words = ends(frame, frame["ns"], "time")
    ranks = shown["rank"].tolist()
    assert {17, 200} <= set(ranks)
    assert ranks == sorted(set(ranks))
    assert len(ranks) == MOST
    assert "of 256" in words


def test_of_equal_rows_each_is_shown_once_and_the_first_of_them() -> None:
    frame = pd.DataFrame({"rank": range(100), "ns": [5] * 100})
    assert ends(frame, frame["ns"], "time")[0]["rank"].tolist() == list(range(MOST))
