"""Take the pictures of the dashboard that the documents show, over runs of the samples.

    python -m docs.screenshots [--only NAME...] [--chromium PATH]

Each is taken of the real dashboard in Chromium, at a fixed size and theme, and stored with few colours, so
that a picture stays below 150 kB.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from playwright.sync_api import expect, sync_playwright

from samples.simulator import write
from samples.simulator.examples import training
from samples.simulator.planted import memory_ranks
from tests.browser.serving import Served, served
from tracekit.ingest import import_traces
from tracekit.store import Store

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
LARGEST = 150_000
"""Bytes of a picture at most."""
SETTLED_MS = 60_000


@dataclass(frozen=True)
class Picture:
    """One picture.

    Attributes:
        name: Of the file, without its ending.
        page: Which page.
        run: Of which run, by its short name.
        dark: Whether in the dark theme.
        words: Further words of the address.
    """

    name: str
    page: str
    run: str
    dark: bool = False
    words: dict[str, str] = field(default_factory=dict)


PICTURES = (
    Picture("overview", "overview", "train"),
    Picture("timeline", "timeline", "train"),
    Picture("timeline-dark", "timeline", "train", dark=True),
    Picture("idle-gaps", "idle_gaps", "job"),
    Picture("kernels", "kernels", "job"),
    Picture("ops", "ops", "cpu", dark=True),
)


def filled(folder: Path) -> tuple[Store, dict[str, str]]:
    """A store of the samples' runs, and their ids by a short name."""
    store = Store(folder / "store")
    for rank, program in enumerate(memory_ranks.job(ranks=2, late=1)):
        (folder / "two-ranks").mkdir(exist_ok=True)
        write(program, folder / "two-ranks" / f"rank{rank}.json")
    sources = {
        "cpu": ROOT / "samples" / "recorded" / "mnist_cnn-train-cpu" / "trace.json.gz",
        "job": folder / "two-ranks",
        "train": write(training(), folder / "training.json"),
    }
    return store, {name: import_traces(store, [path])[0].path.name for name, path in sources.items()}


def take(browser: Browser, site: Served, picture: Picture) -> Path:
    """Take one picture."""
    scheme = "dark" if picture.dark else "light"
    size = {"width": 1_280, "height": 720}
    with browser.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce") as context:
        page = context.new_page()
        page.goto(site.url(picture.page, picture.run, **picture.words))
        expect(page.locator("#page h1")).to_be_visible(timeout=SETTLED_MS)
        expect(page.locator('.tk-block[aria-busy="true"]')).to_have_count(0, timeout=SETTLED_MS)
        if picture.page == "timeline":
            canvas = page.locator('#timeline-canvas[data-settled="true"]')
            expect(canvas).to_be_visible(timeout=SETTLED_MS)
        page.wait_for_load_state("networkidle")
        target = IMAGES / f"{picture.name}.png"
        page.screenshot(path=target, scale="css", animations="disabled")
    return target


def main() -> None:
    """Take them all, or those named; exit with 1 where one is too large."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[picture.name for picture in PICTURES])
    parser.add_argument("--chromium", default=shutil.which("chromium"))
    options = parser.parse_args()
    IMAGES.mkdir(exist_ok=True)
    large = False
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=options.chromium, args=["--no-sandbox"])
        with served(*filled(Path(name))) as site:
            for picture in PICTURES:
                if picture.name in options.only:
                    size = take(browser, site, picture).stat().st_size
                    large |= size > LARGEST
                    print(f"{picture.name:16}{size / 1000:8.1f} kB")
        browser.close()
    sys.exit(int(large))


if __name__ == "__main__":
    main()
