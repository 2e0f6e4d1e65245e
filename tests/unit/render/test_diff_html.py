"""A comparison as a page: what a reader without a mouse, without colours or with hostile names gets."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from tests.unit.render.diffs import DEVICE_PARTS, cause, compared, group, judged, metric, refused, side
from tracekit.diff.model import Diff, Verdict
from tracekit.render.diff import COLORS, as_html

HOSTILE = "<script>alert(1)</script>\x1b[2J\u202e\"'onload=x|`&lt;"
DIFFS = [
    compared(),
    refused("gpu"),
    judged(Verdict.REGRESSION, metric("device_peak", Verdict.PASS), ratio=2.0),
]
VOID = {"meta", "br", "link", "img", "input", "hr"}


class Page(HTMLParser):
    """A page's tags with their attributes; it fails on one that closes another."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def colours(text: str) -> list[dict[str, str]]:
    """The variables of the light and the dark page."""
    light, dark = re.findall(r":root \{(.*?)\}", text, flags=re.DOTALL)
    both = [dict(re.findall(r"--(\w+): (#\w{6})", part)) for part in (light, dark)]
    assert both[0].keys() == both[1].keys()
    return both


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_every_part_of_a_step_has_a_colour_of_its_own() -> None:
    text = as_html(compared())
    keys = re.findall(r'<li><i class="(p\d)"></i>', text)
    assert len(keys) == len(set(keys)) == len(DEVICE_PARTS) == COLORS
    for kind in keys:
        assert f".{kind} {{ background: var(--c{kind[1:]}); }}" in text
    for theme in colours(text):
        assert len({theme[f"c{number}"] for number in range(COLORS)}) == COLORS


def test_text_can_be_read_in_light_and_dark() -> None:
    for theme in colours(as_html(compared())):
        for text in ("text", "soft"):
            for ground in ("page", "card"):
                assert contrast(theme[text], theme[ground]) >= 4.5


@pytest.mark.parametrize("found", DIFFS)
def test_tables_have_captions_and_headings_for_rows_and_columns(found: Diff) -> None:
    page = Page(as_html(found))
    assert len(page.named("caption")) == len(page.named("table")) > 0
    assert {one.get("scope") for one in page.named("th")} == {"row", "col"}
    headings = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h\d", tag)]
    assert headings[0] == 1
    assert set(headings[1:]) == {2}


def test_what_scrolls_can_be_reached_by_keyboard_and_has_a_name() -> None:
    regions = [one for one in Page(as_html(compared())).named("div") if one.get("class") == "scroll"]
    assert regions
    assert all(one["tabindex"] == "0" and one["role"] == "region" and one["aria-label"] for one in regions)


def test_a_bar_says_in_words_what_it_shows_in_colours() -> None:
    images = [one for one in Page(as_html(compared())).named("div") if one.get("role") == "img"]
    assert [
        str(one["aria-label"]).startswith(f"step of the {side}:")
        for one, side in zip(images, ("base", "head"), strict=True)
    ] == [True, True]
    assert all(f"{part} 12.5%" in str(images[0]["aria-label"]) for part in DEVICE_PARTS)


@pytest.mark.parametrize("found", DIFFS)
def test_the_page_asks_for_nothing(found: Diff) -> None:
    text = as_html(found)
    page = Page(text)
    assert {tag for tag, _ in page.tags} & {"script", "link", "img", "iframe", "object", "form"} == set()
    assert not re.search(r"https?:|url\(|@import|\bon\w+=\"", text)
    assert "default-src 'none'" in text


def test_hostile_names_are_text_wherever_they_stand() -> None:
    long = HOSTILE * 100
    found = compared(
        base=side(HOSTILE, HOSTILE),
        causes=(cause(long, long, rate=5),),
        groups=(group(long, rate=5),),
        warnings=(HOSTILE,),
    )
    text = as_html(found)
    page = Page(text)
    assert page.named("script") == []
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", text)
    assert not [one for _, attributes in page.tags for one in attributes if one.startswith("on")]


def test_a_long_name_is_there_in_whole() -> None:
    name = "void " + "some_namespace::" * 30 + "kernel<float>"
    text = as_html(compared(causes=(cause("aten::mm", name, rate=5),), groups=()))
    assert text.count("<details><summary>") >= 1
    assert name.replace("<", "&lt;").replace(">", "&gt;") in text


@pytest.mark.parametrize(
    ("verdict", "beside", "tone"),
    [
        (Verdict.PASS, Verdict.PASS, ' class="good"'),
        (Verdict.PASS, Verdict.REGRESSION, ' class="bad"'),
        (Verdict.CANNOT_TELL, Verdict.PASS, ""),
    ],
)
def test_a_page_is_not_green_where_anything_got_worse(verdict: Verdict, beside: Verdict, tone: str) -> None:
    assert f"<h1{tone}>{verdict}" in as_html(judged(verdict, metric("device_peak", beside)))


def test_refusal_says_how_to_compare_nevertheless() -> None:
    text = "".join(Page(as_html(refused("gpu", "sm_count"))).text)
    assert "ignore the differences: tracekit diff a b --varying gpu" in " ".join(text.split())


def test_the_dark_page_and_the_printed_one_are_the_readers_choice() -> None:
    text = as_html(compared())
    assert "@media (prefers-color-scheme: dark)" in text
    assert "@media print" in text
    assert "color-scheme: light dark" in text
