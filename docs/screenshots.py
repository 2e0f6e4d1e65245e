"""Take the pictures of the dashboard that the documents show.

    python -m docs.screenshots [--only NAME...] [--chromium PATH]

Each is taken of the real dashboard in Chromium, at a fixed size, once in light and once in dark colors, and
stored with 256 colors. The runs are those of the samples, and those that the tutorial makes: its commands
are carried out for that, which takes some minutes.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from PIL import Image
from playwright.sync_api import expect, sync_playwright

from tests.browser.serving import Served, served
from tests.docs.pages import Page
from tracekit.cli.sample import FOLDER
from tracekit.ingest.importer import import_traces
from tracekit.runs.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

    Scheme = Literal["light", "dark"]

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
RECORDED = ROOT / "samples" / "recorded"
LARGEST = 100_000
"""Bytes of a picture at most."""
COLORS = 256
SETTLED_MS = 300_000
_BELOW_THE_BAR = "each => { each.style.scrollMarginTop = '70px'; each.scrollIntoView(); }"
_DRAWN = """() => [[".dash-graph", ".main-svg"], ["[class*=ag-theme]", ".ag-root"]].every(
    ([place, content]) => [...document.querySelectorAll(place)].filter(each => {
        const { top, bottom } = each.getBoundingClientRect();
        return bottom > 0 && top < innerHeight;
    }).every(each => each.querySelector(content))
)"""
"""Whether the charts and grids in the window are there; those below it are made when it reaches them."""
TUTORIAL = "tutorial-"
"""How pictures begin that are of the tutorial's runs."""


@dataclass(frozen=True)
class Picture:
    """One picture, taken twice.

    Attributes:
        name: Of the file in light colors, without its ending; in dark colors `-dark` follows.
        page: Which page.
        run: Of which run, by its short name.
        base: Compared with which run; empty for none.
        heading: What it begins with; empty for the top of the page.
        words: Further words of the address.
    """

    name: str
    page: str
    run: str
    base: str = ""
    heading: str = ""
    words: dict[str, str] = field(default_factory=dict)


PICTURES = (
    Picture("overview", "overview", "loader"),
    Picture("timeline", "timeline", "training"),
    Picture("idle-gaps", "idle_gaps", "job"),
    Picture("kernels", "kernels", "job"),
    Picture("ops", "ops", "cpu"),
    Picture("compare", "compare", "after", base="before", heading="Step time breakdown"),
    Picture(f"{TUTORIAL}ops", "ops", "slow"),
    Picture(
        f"{TUTORIAL}compare",
        "compare",
        "slow",
        base="fast",
        heading="Step time breakdown",
        words={"varying": "dtype"},
    ),
)


def filled(folder: Path) -> tuple[Store, dict[str, str]]:
    """A store of the samples that come with tracekit, and their ids by their names."""
    store = Store(folder / "store")
    sources = {name: FOLDER / f"{name}.json.gz" for name in ("loader", "training", "before", "after")}
    sources |= {"job": FOLDER / "job", "cpu": RECORDED / "mnist_cnn-train-cpu" / "trace.json.gz"}
    return store, {name: import_traces(store, [path])[0].path.name for name, path in sources.items()}


def tutorial_store(folder: Path) -> tuple[Store, dict[str, str]]:
    """The store of the tutorial where it looks at the dashboard, and the ids of a run of each commit."""
    (folder / "reader").mkdir()
    page = Page(ROOT / "docs" / "tutorial.md", folder / "reader")
    for block, _ in page.carry_out():
        if block.text.startswith("tracekit dashboard"):
            break
    store = Store(page.folder / ".tracekit")
    runs = list(store.runs())
    return store, {"fast": runs[0].path.name, "slow": runs[-1].path.name}


def take(browser: Browser, site: Served, picture: Picture, scheme: Scheme) -> Path:
    """Take one picture in one scheme of colors."""
    target = IMAGES / f"{picture.name}{'-dark' if scheme == 'dark' else ''}.png"
    words = dict(picture.words) | ({"base": site.runs[picture.base]} if picture.base else {})
    with browser.new_context(
        viewport={"width": 1_280, "height": 720}, color_scheme=scheme, reduced_motion="reduce"
    ) as context:
        page = context.new_page()
        page.goto(site.url(picture.page, picture.run, **words))
        expect(page.locator("#page h1")).to_be_visible(timeout=SETTLED_MS)
        expect(page.locator('.tk-block[aria-busy="true"]')).to_have_count(0, timeout=SETTLED_MS)
        if picture.page == "timeline":
            canvas = page.locator('#timeline-canvas[data-settled="true"]')
            expect(canvas).to_be_visible(timeout=SETTLED_MS)
            for text in ("idle: ", "In view, by category ("):  # causes of idle time, and sums, come later
                expect(page.get_by_text(text).first).to_be_visible(timeout=SETTLED_MS)
        if picture.page == "overview":  # its findings come one by one
            expect(page.get_by_text("rules checked")).to_be_visible(timeout=SETTLED_MS)
        for _ in range(2):  # what is drawn moves what is below it
            if picture.heading:
                page.get_by_role("heading", name=picture.heading).evaluate(_BELOW_THE_BAR)
            page.wait_for_function(_DRAWN, timeout=SETTLED_MS)
            page.wait_for_load_state("networkidle")
        page.screenshot(path=target, scale="css", animations="disabled")
    _fewer_colors(target)
    return target


def _fewer_colors(path: Path) -> None:
    """Store a picture with a palette: a page has few colors, and the file is a third as large."""
    with Image.open(path) as image:
        image.convert("RGB").quantize(COLORS, dither=Image.Dither.NONE).save(path, optimize=True)


def _taken(names: list[str], chromium: str | None) -> Iterator[Path]:
    """The pictures named, each where it was stored; a store is only filled for what is asked for."""
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for fill, of_tutorial in ((filled, False), (tutorial_store, True)):
            chosen = [
                one for one in PICTURES if one.name in names and one.name.startswith(TUTORIAL) == of_tutorial
            ]
            if not chosen:
                continue
            with served(*fill(Path(name))) as site:
                for picture in chosen:
                    yield take(browser, site, picture, "light")
                    yield take(browser, site, picture, "dark")
        browser.close()


def main() -> None:
    """Take them all, or those named; exit with 1 where one is too large."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[picture.name for picture in PICTURES])
    parser.add_argument("--chromium", default=shutil.which("chromium"))
    options = parser.parse_args()
    IMAGES.mkdir(exist_ok=True)
    large = False
    for path in _taken(options.only, options.chromium):
        size = path.stat().st_size
        large |= size > LARGEST
        print(f"{path.name:24}{size / 1000:8.1f} kB")
    sys.exit(int(large))


if __name__ == "__main__":
    main()
