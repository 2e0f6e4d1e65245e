"""`tracekit sample`: list the traces that come with tracekit, or copy one."""

from __future__ import annotations

import shutil
from pathlib import Path

from tracekit import render
from tracekit.analysis import Column
from tracekit.cli import lazy_click as click
from tracekit.cli.options import format_option
from tracekit.errors import UnusableInputError

FOLDER = Path(__file__).parent / "samples"
SAMPLES = {
    "loader": "training on an H200 that waits for its data loader, 4 steps",
    "training": "simulated training on a GPU, 3 short steps",
    "compiled": "training on an H200 through torch.compile, with its log: a folder",
    "job": "simulated job of two ranks, one of which is late: a folder",
    "before": "simulated recommendation model",
    "after": "the same, after a change that made it 15% slower",
    "server": "simulated vLLM server, 400 steps",
}
COLUMNS = (
    Column("name", "", "name for `tracekit sample`"),
    Column("size", "bytes", "size of its files"),
    Column("contents", "prose", "what was recorded"),
)


@click.command("sample")
@click.argument("name", required=False, type=click.Choice(list(SAMPLES)))
@click.argument("path", required=False, type=click.Path(path_type=Path))
@format_option
def command(*, name: str | None, path: Path | None, output_format: str) -> None:
    """List the traces that come with tracekit, or copy one to PATH.

    The default PATH is NAME.json.gz in the current folder or, for several files, a folder NAME. Existing
    files are not overwritten. Prints the path of the copy.

    \b
    tracekit sample
    tracekit sample loader trace.json.gz
    tracekit findings ./trace.json.gz
    """  # noqa: D301 (click reads the \b)
    if name is None:
        rows = [{"name": one, "size": _size(one), "contents": text} for one, text in SAMPLES.items()]
        click.echo(
            render.rows(rows, COLUMNS, output_format, command="sample", key="samples", limit=0), nl=False
        )
        return
    source = _source(name)
    target = path or Path(source.name)
    if target.exists():
        raise UnusableInputError(f"{target} already exists", hint="give another PATH, or delete it")
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copyfile(source, target)
    click.echo(str(target))


def _source(name: str) -> Path:
    folder = FOLDER / name
    return folder if folder.is_dir() else FOLDER / f"{name}.json.gz"


def _size(name: str) -> int:
    source = _source(name)
    files = source.iterdir() if source.is_dir() else [source]
    return sum(file.stat().st_size for file in files)
