"""Shell completion of arguments: runs, labels, analyses, tables, workloads and files.

The shell waits for the answer, so these import neither NumPy nor Arrow. Any error means no suggestions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from click import Context, Parameter
    from click.shell_completion import CompletionItem

    from tracekit.runs.run import Run
    from tracekit.runs.store import Store

    Complete = Callable[[Context, Parameter, str], list[CompletionItem]]

_MAX_RUNS = 100  # number of newest runs whose ids and labels are suggested


def _complete_from(names: Callable[[Context], Iterable[str]], *, otherwise: str = "") -> Complete:
    """Return a completion from names; with `otherwise`, of paths of this type if no name fits."""

    def complete(ctx: Context, _param: Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        *done, word = incomplete.rpartition(",") if names is _analyses else [incomplete]
        before = "".join(done)  # of a comma-separated list
        candidates: Iterable[str] = ()
        with suppress(Exception):
            candidates = list(names(ctx))
        items = [CompletionItem(before + name) for name in candidates if name.startswith(word)]
        return items or ([CompletionItem(incomplete, type=otherwise)] if otherwise else [])

    return complete


def _store(ctx: Context) -> Store | None:
    """Return the store of the command; None if it is not on a local disk."""
    from tracekit.runs.store import Store, locate

    place = locate(ctx.params.get("store"))
    return Store(place) if isinstance(place, Path) else None


def _newest(ctx: Context) -> list[Run]:
    store = _store(ctx)
    return store.runs()[: -_MAX_RUNS - 1 : -1] if store else []


def _labels(ctx: Context) -> Iterator[str]:
    labels = []
    for run in _newest(ctx):
        with suppress(Exception):  # damaged metadata
            labels.append(run.meta.label)
    yield from dict.fromkeys(filter(None, labels))


def _runs(ctx: Context) -> Iterator[str]:
    yield from ("latest", *_labels(ctx), *(run.path.name for run in _newest(ctx)))


def _plugins(group: str) -> Callable[[Context], list[str]]:
    def names(_ctx: Context) -> list[str]:
        from tracekit import registry

        return registry.names(group)

    return names


_analyses = _plugins("tracekit.analyses")


def _tables(ctx: Context) -> Iterator[str]:
    """Return the tables of the cached results of the run, of all analyses or the named ones."""
    store = _store(ctx)
    words = ctx.args or [ctx.params.get("run") or "latest", *(ctx.params.get("names") or ())]
    run, *names = words  # unparsed, as --table has no value yet
    if run in _analyses(ctx):
        run, names = "latest", words
    matched = store.find(run) if store else None
    if store and matched:
        folder = store.local_folder / ".results" / matched.path.name
        files = [folder / f"{name}.zip" for name in names] or sorted(folder.glob("*.zip"))
        yield from dict.fromkeys(name for file in files for name in _tables_of_result(file))


def _tables_of_result(file: Path) -> list[str]:
    from zipfile import ZipFile

    with suppress(Exception), ZipFile(file) as archive:  # it may be missing or damaged
        head: dict[str, Any] = json.loads(archive.read("result.json"))
        return list(head["tables"].keys())  # not a mapping in files of earlier versions
    return []


def _sweeps(ctx: Context) -> Iterator[str]:
    store = _store(ctx)
    yield "latest"
    if store:
        yield from sorted(
            (folder.name for folder in (store.local_folder / ".sweeps").iterdir()), reverse=True
        )


def choice(*words: str) -> Complete:
    """Complete one of a few words."""
    return _complete_from(lambda _: words)


run = _complete_from(_runs, otherwise="file")
run_or_analysis = _complete_from(lambda ctx: chain(_runs(ctx), _analyses(ctx)), otherwise="file")
label = _complete_from(_labels)
analysis = _complete_from(_analyses)
table = _complete_from(_tables)
workload = _complete_from(_plugins("tracekit.workloads"))
collector = _complete_from(_plugins("tracekit.collectors"))
change = _complete_from(_plugins("tracekit.changes"))
sweep = _complete_from(_sweeps)
file = _complete_from(lambda _: (), otherwise="file")
folder = _complete_from(lambda _: (), otherwise="dir")

OF_OPTION = {"workload": workload, "collector": collector, "change": change, "label": label}
"""Completions of declared options that have no fixed choices."""
