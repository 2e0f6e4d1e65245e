"""Documents of the repository: their links lead somewhere, and their figures are those that were measured."""

from __future__ import annotations

import json
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

from tests.docs.blocks import FENCE, ROOT, blocks
from tests.docs.blocks import PAGES as EXECUTED

PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        ROOT / "samples/README.md",
        ROOT / "tracekit/ingest/kineto/scan/README.md",
    ]
)
UNRUN = {
    "README.md": 5,
    "docs/agents.md": 3,
    "docs/architecture.md": 1,
    "docs/check.md": 2,
    "docs/collecting.md": 5,
    "docs/comparing.md": 1,
    "docs/compiled-code.md": 3,
    "docs/dashboard.md": 2,
    "docs/gpu.md": 1,
    "docs/index.md": 1,
    "docs/many-gpus.md": 5,
    "docs/quickstart.md": 3,
    "docs/serving.md": 2,
    "docs/sharing.md": 1,
    "docs/store.md": 2,
    "docs/trying.md": 3,
    "docs/tutorial.md": 2,
}
"""How many blocks each document says cannot be run here."""
MAX_README_LINES = 135
MAX_RELEASE_LINES = 50
"""What fits on one screen."""
NO_CLAIMS = (
    "It does **not** authenticate",
    "Arrow and SQLite are large",
    "The memory limit does not apply",
    "Other users of the same machine",
    "After a power failure",
    "Locks identify running writers",
)
"""Beginnings of what SECURITY.md says does not hold, or depends on others."""
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_CODE = re.compile(r"`[^`\n]*`")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_ID = re.compile(r'<a id="([^"]+)"')


def links(text: str) -> list[str]:
    """Targets of the links of a document, without those in code."""
    return _LINK.findall(_CODE.sub("", FENCE.sub("", text)))


@cache
def anchors(path: Path) -> frozenset[str]:
    """Anchors that GitHub makes of the headings of a document, and those that it sets itself."""
    text = FENCE.sub("", path.read_text())
    found: set[str] = set()
    for heading in _HEADING.findall(text):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("\\", "")
        anchor = re.sub(r"[^\w -]", "", words.strip().lower()).replace(" ", "-")
        numbers = (f"{anchor}-{number}" for number in range(1, 100))
        found.add(anchor if anchor not in found else next(one for one in numbers if one not in found))
    return frozenset(found | set(_ID.findall(text)))


def broken(url: str, page: Path) -> bool:
    """Whether a link leads nowhere in the repository."""
    if re.match(r"(https|mailto):", url):
        return False
    file, _, anchor = url.partition("#")
    target = (page.parent / file).resolve() if file else page
    if not target.is_relative_to(ROOT) or not target.exists():
        return True
    return bool(anchor) and target.suffix == ".md" and anchor not in anchors(target)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere_in_the_repository(page: Path) -> None:
    assert [url for url in links(page.read_text()) if broken(url, page)] == []


def test_links_that_lead_nowhere_are_found(tmp_path: Path) -> None:
    text = "[a](docs/none.md) [b](README.md#none) [c](docs/limits.md#queries) [d](https://e.org) `[f](g)`"
    found = links(text)
    assert [url for url in found if broken(url, ROOT / "README.md")] == ["docs/none.md", "README.md#none"]


def measured(case: dict, contender: str) -> str:
    """A figure of the table in the README: time and peak memory of one contender."""
    (row,) = [row for row in case["rows"] if row["contender"].startswith(contender)]
    if row["failed"]:
        limit = re.search(r"limit of (\d+) s", row["failed"])
        assert limit is not None, row["failed"]
        return f"more than {limit[1]} s"
    return f"{row['wall_s']['median']:.3g} s, {row['peak_mb']['median']:,.0f} MB"


def test_the_speeds_in_the_readme_are_those_of_one_benchmark() -> None:
    text = (ROOT / "README.md").read_text()
    cases = json.loads((ROOT / "docs/benchmarks.json").read_text())["parts"]["ingest"]["cases"]
    for series in ("recorded, plain", "simulated, plain"):
        case = max((one for one in cases if one["series"] == series), key=lambda one: one["bytes"])
        figures = (measured(case, name) for name in ("tracekit import", "json.loads", "HTA load"))
        size = f"{case['bytes'] / 1e6:,.0f} MB, {case['events']:,} events"
        assert f"| {size} | {' | '.join(figures)} |" in text


def test_step_times_of_the_sample_are_those_that_were_recorded() -> None:
    steps = json.loads((ROOT / "samples/bounds/steps.json").read_text())["loader_without_workers"]
    before, after = (f"{ns / 1e6:.1f}" for ns in (steps["step_ns"], steps["remedies_ns"]["8_workers"]))
    for page, figures in {
        "README.md": f"with 8 workers, the same program takes {after} ms per step instead of {before} ms",
        "docs/quickstart.md": f"took {before} ms per step, and {after} ms with 8 workers",
        "docs/gpu.md": f"| {before} | {after} (8 workers) |",
    }.items():
        assert figures in " ".join((ROOT / page).read_text().split()), page


def test_every_extra_of_users_is_described() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    table = (ROOT / "docs/index.md").read_text().partition("| extra | adds |")[2].partition("\n\n")[0]
    extras = {
        name for row in re.findall(r"^\| (`[^|]*) \|", table, re.MULTILINE) for name in row.split("`")[1::2]
    }
    assert extras == set(project["optional-dependencies"]) - {"dev", "docs"}


def test_the_readme_and_each_release_of_the_changelog_stay_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= MAX_README_LINES
    releases = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[1:]
    long = [release.partition("\n")[0] for release in releases if release.count("\n") > MAX_RELEASE_LINES]
    assert len(releases) > 1
    assert long == []


@cache
def defined_tests() -> frozenset[str]:
    """Names of all tests."""
    texts = (path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    return frozenset(
        name for text in texts for name in re.findall(r"^ *def (test_\w+)\(", text, re.MULTILINE)
    )


def list_claims(page: str) -> list[str]:
    """Items and rows of a page that a test shows."""
    text = (ROOT / page).read_text()
    if page == "docs/limits.md":
        tables = re.findall(r"^\| input .*\n\|[-|]+\n((?:\| .*\n)+)", text, re.MULTILINE)
        return [row for rows in tables for row in rows.splitlines()]
    sections = text.split("\n## ")[2:-1]
    items = [
        item for part in sections for item in re.split(r"^- ", part.partition("**Not**")[0], flags=re.M)[1:]
    ]
    return [item.partition("\n\n")[0] for item in items]


@pytest.mark.parametrize("page", ["SECURITY.md", "docs/limits.md"])
def test_each_claim_names_tests_that_exist(page: str) -> None:
    claims = list_claims(page)
    assert len(claims) > 25
    unshown = [claim for claim in claims if "test_" not in claim and not claim.startswith(NO_CLAIMS)]
    assert unshown == []
    named = re.findall(r"\btest_\w+", (ROOT / page).read_text())
    assert [name for name in named if name not in defined_tests()] == []


def test_blocks_that_cannot_be_run_here_say_why_and_are_counted() -> None:
    counted: dict[str, int] = {}
    for path in EXECUTED:
        if reasons := [block.reason for block in blocks(path) if block.reason]:
            counted[path.relative_to(ROOT).as_posix()] = len(reasons)
    assert counted == UNRUN
