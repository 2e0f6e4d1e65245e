"""Check runs: what `run.json` says against what is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit import meta as run_meta
from tracekit import places
from tracekit.errors import TracekitError
from tracekit.schema import TABLES
from tracekit.verifying import tables
from tracekit.verifying.model import Damage, Kind, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tracekit.meta import RunMeta, TableFile
    from tracekit.places import Place
    from tracekit.run import Run

    Progress = Callable[[str, int, int], None]
    """Told the run, the bytes of it that are read, and its size."""


def _silent(_name: str, _done: int, _size: int) -> None:
    pass


def verify(run: Run, *, quick: bool = False, progress: Progress = _silent) -> Verdict:
    """What is wrong with a run; it is only read.

    Args:
        run: A run of a store, or a folder that should be one.
        quick: Read no content: sizes, footers and columns are compared, which finds what is cut, missing or
            of another version, and not a bit that changed.
        progress: Told how far it is.

    Example:
        >>> verify(tracekit.open("latest")).is_whole  # doctest: +SKIP
        True
    """
    sizes = tables.size_of(places.inside(run.path, "*.parquet", deep=True))
    meta, found = _metadata(run)
    stored = meta.tables if meta else {}
    done = 0

    def read(more: int) -> None:
        nonlocal done
        done += more
        progress(run.path.name, done, sizes)

    progress(run.path.name, 0, sizes)
    for name, one in stored.items():
        found += _table(run.path, name, one, quick=quick, read=read)
    found += _links(run.path)
    if meta:
        found += _unknown(run.path, meta)
    rows = sum(one.rows for one in stored.values())
    return Verdict(run=run.path.name, tables=len(stored), rows=rows, bytes=sizes, damage=tuple(found))


def _metadata(run: Run) -> tuple[RunMeta | None, list[Damage]]:
    try:
        meta = run_meta.read(run.path)
        data = (run.path / run_meta.FILE_NAME).read_bytes()
    except TracekitError as error:
        return None, [_wrong(error.message)]
    except OSError as error:
        return None, [_wrong(f"{run_meta.FILE_NAME} cannot be read: {error.strerror}")]
    found = []
    if meta.run_id != run.path.name:
        found.append(_wrong(f"it says that this is run {meta.run_id}"))
    if run_meta.is_as_sealed(data) is False:
        found.append(_wrong(f"{run_meta.FILE_NAME} was changed after the run was stored"))
    return meta, found


def _wrong(told: str) -> Damage:
    return Damage(kind=Kind.METADATA, told=told)


def _table(
    folder: Place, name: str, stored: TableFile, *, quick: bool, read: Callable[[int], None]
) -> list[Damage]:
    if name not in TABLES:
        return [Damage(kind=Kind.UNKNOWN, table=name, told="run.json names a table that there is not")]
    files = files_of(folder, name)
    if not files:
        return [Damage(kind=Kind.MISSING, table=name, told=f"{name}.parquet is not there")]
    return tables.check(TABLES[name], files, stored, quick=quick, read=read)


def files_of(folder: Place, name: str) -> Sequence[Place]:
    """The files of a table, in the order in which they are sealed; none when there are none."""
    single = folder / f"{name}.parquet"
    return [single] if single.is_file() else places.inside(folder / name, "*.parquet")


def _unknown(folder: Place, meta: RunMeta) -> Iterator[Damage]:
    for name in TABLES.keys() - meta.tables.keys():
        if files_of(folder, name):
            yield Damage(kind=Kind.UNKNOWN, table=name, told="run.json does not name this table")
    for name in meta.tables.keys() & TABLES.keys():
        both = (folder / f"{name}.parquet").is_file() and (folder / name).is_dir()
        if both:
            yield Damage(kind=Kind.UNKNOWN, table=name, told="there is a file and a folder of this table")


def _links(folder: Place) -> Iterator[Damage]:
    for path in places.inside(folder, deep=True):
        if path.is_symlink():
            where = "/".join(path.parts[len(folder.parts) :])
            yield Damage(kind=Kind.UNKNOWN, told=f"{where} is a link, and a run has none")
