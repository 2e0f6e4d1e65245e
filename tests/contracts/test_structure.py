"""The sources keep the structure that docs/architecture.md describes."""

from __future__ import annotations

import re
from functools import cache
from graphlib import TopologicalSorter
from itertools import pairwise

import pytest

from tests.structure import LAZY, LOAD, PACKAGE, ROOT, Sources, circles, needed, working_tree

PAGE = (ROOT / "docs/architecture.md").read_text()
FLOW, IMPORTS = re.findall(r"```mermaid\n(.*?)```", PAGE, re.DOTALL)
_ARROW = re.compile(r"-->(?:\|[^|]*\|)?")
_NODE = re.compile(r"^(\w+)")
MAX_ENTRIES, MAX_FILES, MAX_LINES = 17, 523, 500
"""Limits of entries at the top of `tracekit/`, of source files, and of the lines of one."""


@cache
def sources() -> Sources:
    return working_tree()


@pytest.fixture(scope="module", autouse=True)
def _parsed() -> None:
    """Parse the sources before the first test, whose CPU time has a limit."""
    sources().rooms(LOAD)


def arrows(diagram: str) -> set[tuple[str, str]]:
    """Pairs of nodes that a Mermaid diagram connects, without those that are drawn rounded: no rooms."""
    outside = set(re.findall(r"(\w+)\(\[", diagram))
    found = set()
    for line in diagram.splitlines()[1:]:
        nodes = [_NODE.match(part.strip())[1] for part in _ARROW.split(line)]  # type: ignore[index]
        found |= {pair for pair in pairwise(nodes) if not outside & set(pair)}
    return found


def test_every_room_is_described_and_drawn() -> None:
    rooms = set(sources().rooms(LOAD))
    described = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert sorted(described) == sorted(rooms)
    assert {room for arrow in arrows(IMPORTS) for room in arrow} == rooms


def test_the_arrows_of_imports_are_the_imports() -> None:
    graph = needed(sources().rooms(LOAD, LAZY))
    assert arrows(IMPORTS) == {(room, other) for room, others in graph.items() for other in others}


def test_data_flows_between_rooms_of_which_one_imports_the_other() -> None:
    graph = sources().rooms(LOAD, LAZY)
    flows = arrows(FLOW)
    assert flows
    assert [(one, other) for one, other in flows if other not in graph[one] and one not in graph[other]] == []


def test_rooms_import_in_one_direction() -> None:
    TopologicalSorter(sources().rooms(LOAD, LAZY)).prepare()  # raises CycleError, which names the circle


def test_no_modules_load_each_other() -> None:
    assert circles(sources().any_import()) == []


def test_a_circle_and_a_lazy_import_are_found() -> None:
    planted = Sources(
        {
            "tracekit/__init__.py": "",
            "tracekit/runs/__init__.py": "",
            "tracekit/runs/run.py": "from . import meta",
            "tracekit/runs/meta.py": "from tracekit.runs.run import Run",
            "tracekit/cli/main.py": "def main():\n    from tracekit.runs import run",
        }
    )
    assert circles(planted.loads()) == [{"tracekit.runs.run", "tracekit.runs.meta"}]
    assert planted.rooms(LOAD) == {"runs": set(), "cli": set()}
    assert planted.rooms(LOAD, LAZY) == {"runs": set(), "cli": {"runs"}}


def test_files_are_neither_too_many_nor_too_long() -> None:
    top = {
        path.name
        for path in (ROOT / PACKAGE).iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert len(top - {"__init__.py", "__main__.py"}) <= MAX_ENTRIES
    assert len(sources().files) <= MAX_FILES
    assert {path: lines for path, lines in sources().lines.items() if lines > MAX_LINES} == {}


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`([\w./]+/[\w./]*|[\w/]+\.(?:py|toml))`", PAGE))))
def test_a_file_that_the_page_names_exists(path: str) -> None:
    places = (ROOT, ROOT / PACKAGE, ROOT / "analyses", ROOT / "tracekit/ingest/kineto")
    assert any((place / path).exists() or any(place.glob(f"*/{path}")) for place in places)
