"""Measure the structure of the sources: files, rooms and imports.

    just house                 the working tree, and what each room imports
    just house 326be71 HEAD    two commits, side by side

A room is an entry at the top of `tracekit/`, or one of the folders `analyses/`, `collectors/` and
`dashboards/`, which are installed as part of tracekit. An import is made when a module loads or, lazily, in a
function; an import for type checkers only is neither.
"""

from __future__ import annotations

import argparse
import ast
import io
import statistics
import subprocess
import tarfile
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

ROOT = Path(__file__).parents[1]
FOLDERS = ("tracekit", "analyses", "collectors", "dashboards")
PACKAGE = "tracekit"
OUTSIDE = (PACKAGE, f"{PACKAGE}.__main__")
"""Modules that are in no room."""
LOAD, LAZY, TYPES = "load", "lazy", "types"
"""When an import is made: with its module, in a function, or never but for type checkers."""

Graph: TypeAlias = dict[str, set[str]]


def module_name(path: str) -> str:
    """Return the dotted name of a source file.

    Example:
        >>> [module_name(path) for path in ("tracekit/runs/run.py", "analyses/copies/__init__.py")]
        ['tracekit.runs.run', 'tracekit.analyses.copies']
    """
    name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return name if name.split(".")[0] == PACKAGE else f"{PACKAGE}.{name}"


def room(module: str) -> str:
    """Return the room of a module; the package `tracekit` itself is a room of its own.

    Example:
        >>> [room(name) for name in ("tracekit", "tracekit.errors", "tracekit.analyses.copies")]
        ['tracekit', 'errors', 'analyses']
    """
    return module.split(".")[1] if "." in module else PACKAGE


@dataclass(frozen=True)
class Sources:
    """The product's source files, by their path from the root of the repository."""

    files: Mapping[str, str]

    @cached_property
    def modules(self) -> dict[str, str]:
        """Paths by module name."""
        return {module_name(path): path for path in self.files}

    @cached_property
    def trees(self) -> dict[str, ast.Module]:
        """Syntax trees by path."""
        return {path: ast.parse(text) for path, text in self.files.items()}

    @cached_property
    def lines(self) -> dict[str, int]:
        """Number of lines by path."""
        return {path: len(text.splitlines()) for path, text in self.files.items()}

    @cached_property
    def imports(self) -> dict[str, dict[str, str]]:
        """For each module: the product's modules that it imports, and when; a load outweighs the others."""
        found: dict[str, dict[str, str]] = {}
        for module, path in self.modules.items():
            mine = found.setdefault(module, {})
            for target, when in self._imports_of(module, path):
                if target != module and mine.get(target) != LOAD:
                    mine[target] = when if when == LOAD else mine.get(target, when)
        return found

    def _imports_of(self, module: str, path: str) -> Iterator[tuple[str, str]]:
        package = module if path.endswith("__init__.py") else module.rpartition(".")[0]
        for node, when in _import_nodes(self.trees[path], LOAD):
            if isinstance(node, ast.Import):
                yield from ((name.name, when) for name in node.names if name.name in self.modules)
                continue
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, *filter(None, [node.module])])
            for name in node.names:
                full = f"{base}.{name.name}"
                target = full if full in self.modules else base
                if target in self.modules:
                    yield target, when

    def any_import(self) -> Graph:
        """For each module: the modules that it imports, whenever and for whatever."""
        return {module: set(targets) for module, targets in self.imports.items()}

    def loads(self) -> Graph:
        """For each module: the modules that Python loads with it, packages of imported modules included."""
        graph: Graph = {}
        for module, targets in self.imports.items():
            loaded = {target for target, when in targets.items() if when == LOAD}
            for target in tuple(loaded):
                loaded |= {parent for parent in _parents(target) if parent in self.modules}
            graph[module] = {other for other in loaded if other != module and other not in _parents(module)}
        return graph

    def rooms(self, *kinds: str) -> Graph:
        """For each room: the rooms that it imports; without the package `tracekit` itself."""
        graph: Graph = {room(module): set() for module in self.modules if module not in OUTSIDE}
        for module, targets in self.imports.items():
            if module in OUTSIDE:
                continue
            for target, when in targets.items():
                if when in kinds and target != PACKAGE and room(target) != room(module):
                    graph[room(module)].add(room(target))
        return graph

    def single_importer(self) -> list[str]:
        """Return the modules that one module alone imports, from the same folder."""
        importers = defaultdict(set)
        for module, targets in self.imports.items():
            for target in targets:
                importers[target].add(module)
        return sorted(
            module
            for module, users in importers.items()
            if len(users) == 1
            and Path(self.modules[module]).parent == Path(self.modules[next(iter(users))]).parent
            and not self.modules[module].endswith("__init__.py")
        )


def _parents(module: str) -> Iterator[str]:
    while "." in module:
        module = module.rpartition(".")[0]
        yield module


def _import_nodes(node: ast.AST, when: str) -> Iterator[tuple[ast.Import | ast.ImportFrom, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, when
        elif isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            yield from _import_nodes(child, TYPES)
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and when == LOAD:
            yield from _import_nodes(child, LAZY)
        else:
            yield from _import_nodes(child, when)


def circles(graph: Graph) -> list[set[str]]:
    """Return the strongly connected components of more than one node.

    Example:
        >>> circles({"a": {"b"}, "b": {"a"}, "c": {"a"}}) == [{"a", "b"}]
        True
    """
    reached = {node: _reachable(graph, node) for node in graph}
    found: list[set[str]] = []
    for node, others in reached.items():
        if node in others and not any(node in circle for circle in found):
            found.append({other for other in others if node in reached.get(other, ())})
    return found


def _reachable(graph: Graph, start: str) -> set[str]:
    seen: set[str] = set()
    left = list(graph.get(start, ()))
    while left:
        node = left.pop()
        if node not in seen:
            seen.add(node)
            left += graph.get(node, ())
    return seen


def floors(graph: Graph) -> int:
    """Return the number of nodes on the longest chain of imports; a circle counts as one node.

    Example:
        >>> floors({"cli": {"runs", "errors"}, "runs": {"errors"}, "errors": set()})
        3
    """
    merged = {node: min(circle) for circle in circles(graph) for node in circle}
    simple: Graph = defaultdict(set)
    for node, others in graph.items():
        name = merged.get(node, node)
        simple[name] |= {merged.get(other, other) for other in others} - {name}
    height: dict[str, int] = {}
    for node in TopologicalSorter(simple).static_order():
        height[node] = 1 + max((height[other] for other in simple.get(node, ())), default=0)
    return max(height.values(), default=0)


def needed(graph: Graph) -> Graph:
    """Return the fewest imports from which all others follow (the transitive reduction of the graph).

    Raises:
        CycleError: The graph has a circle.

    Example:
        >>> needed({"cli": {"runs", "errors"}, "runs": {"errors"}, "errors": set()})["cli"]
        {'runs'}
    """
    TopologicalSorter(graph).prepare()
    return {
        node: {
            other for other in others if not any(other in _reachable(graph, via) for via in others - {other})
        }
        for node, others in graph.items()
    }


def working_tree() -> Sources:
    """Read the source files as they are on disk."""
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    return Sources({path.relative_to(ROOT).as_posix(): path.read_text() for path in paths})


def at_commit(commit: str) -> Sources:
    """Read the source files of a commit."""
    archive = subprocess.run(
        ["git", "archive", commit, *FOLDERS], cwd=ROOT, check=True, capture_output=True
    ).stdout
    files = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            if member.isfile() and member.name.endswith(".py"):
                files[member.name] = tar.extractfile(member).read().decode()  # type: ignore[union-attr]
    return Sources(files)


def figures(sources: Sources) -> dict[str, str]:
    """Return the figures that describe a state of the sources, by their names."""
    sizes = sources.lines
    largest = max(sizes, key=sizes.__getitem__)
    rooms = sources.rooms(LOAD, LAZY)
    loose = circles(sources.any_import())
    top = {path.split("/")[1] for path in sources.files if path.startswith(f"{PACKAGE}/") and path.count("/")}
    return {
        "files": f"{len(sizes):,}",
        "lines": f"{sum(sizes.values()):,}",
        "median file, lines": f"{statistics.median(sizes.values()):g}",
        "largest file, lines": f"{sizes[largest]} {largest}",
        "entries at the top of tracekit/": str(len(top - {"__init__.py"})),
        **{
            f"files in {folder}/": str(sum(path.startswith(f"{folder}/") for path in sizes))
            for folder in FOLDERS
        },
        "floors of rooms": str(floors(rooms)),
        "circles of rooms": str(len(circles(rooms))),
        "circles of modules at load": str(len(circles(sources.loads()))),
        "circles of any import": f"{len(loose)} ({sum(map(len, loose))} modules)",
        "modules imported by one module of their folder": str(len(sources.single_importer())),
    }


def compare(states: Mapping[str, Sources]) -> Table:
    """Return a table of the figures of several states."""
    table = Table("", *(f"[bold]{name}" for name in states))
    measured = [figures(sources) for sources in states.values()]
    for name in measured[0]:
        table.add_row(name, *(values[name] for values in measured))
    return table


def contents(sources: Sources) -> Table:
    """Return a table of the rooms: size, and the rooms that each imports."""
    table = Table("room", "files", "lines", "imports")
    graph = sources.rooms(LOAD, LAZY)
    for name in importers_first(graph):
        paths = [path for module, path in sources.modules.items() if room(module) == name]
        size = sum(sources.lines[path] for path in paths)
        table.add_row(name, str(len(paths)), f"{size:,}", ", ".join(sorted(graph[name])))
    return table


def importers_first(graph: Graph) -> Iterable[str]:
    """Importers first; in the order of names where there is a circle."""
    try:
        return reversed(tuple(TopologicalSorter(graph).static_order()))
    except CycleError:
        return sorted(graph)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="just house", description="Measure the structure of the sources.")
    parser.add_argument(
        "commits", nargs="*", metavar="COMMIT", help="compare these instead of the working tree"
    )
    commits = parser.parse_args().commits
    console = Console()
    if commits:
        console.print(compare({commit: at_commit(commit) for commit in commits}))
    else:
        tree = working_tree()
        console.print(compare({"working tree": tree}), contents(tree))


if __name__ == "__main__":
    main()
