"""`tracekit workloads`: list the workloads of `tracekit collect`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tracekit.cli import lazy_click as click
from tracekit.cli.options import format_option

if TYPE_CHECKING:
    from tracekit.workloads.base import Workload

_COLUMNS = {
    "name": ("", "name for `tracekit collect --workload`"),
    "domain": ("", "application domain"),
    "parameters": ("count", "trainable parameters, with default options"),
    "modes": ("", "values of `--mode`"),
    "levels": ("", "values of `--level`"),
    "dtypes": ("", "values of `--dtype`"),
    "defaults": ("", "default options"),
    "sizes": ("", "options set by `--size`"),
    "gpu_memory": ("", "device memory that `--size gpu` needs in float32, in bytes, by mode"),
    "resolution_means": ("prose", "meaning of `--resolution`"),
    "smallest_resolution": ("count", "minimum of `--resolution`"),
    "dataset_shapes": ("", "values of `--dataset-shape`"),
    "offloads": ("", "values of `--offload`"),
    "source": ("", "package that provides it"),
    "summary": ("prose", "description"),
}
_TABLE = {
    name: _COLUMNS[name]
    for name in ("domain", "name", "parameters", "levels", "defaults", "source", "summary")
}


@click.command("workloads")
@format_option
def command(*, output_format: str) -> None:
    """List the workloads that `tracekit collect --workload NAME` can run.

    All use random data and download nothing; listing tracekit's own does not need torch. Models of
    transformers, timm and torchvision are listed if these are installed. The table omits modes, element
    types, sizes and the meaning of `--resolution`, and shows `all` for a workload that supports all levels;
    `--format json` shows everything.
    """
    from tracekit import registry
    from tracekit.analysis import Column

    workloads, broken = registry.load_all(registry.WORKLOADS)
    print_skipped(broken)
    from tracekit import render

    listed = [
        {name: _plain(getattr(workload, name)) for name in _COLUMNS}
        for workload in sorted(workloads, key=_sort_key)
    ]
    if output_format == "table":
        listed = [row | {"levels": _abbreviate_levels(row["levels"])} for row in listed]
    if output_format != "json":
        listed = [{name: _text(value) for name, value in row.items()} for row in listed]
    shown = _table(workloads) if output_format == "table" else _COLUMNS
    columns = [Column(name, unit, meaning) for name, (unit, meaning) in shown.items()]
    click.echo(
        render.rows(listed, columns, output_format, command="workloads", key="workloads", limit=0), nl=False
    )


def print_skipped(broken: Mapping[str, Sequence[str]]) -> None:
    """Print a line on stderr for each reason why workloads cannot be loaded."""
    for why, names in broken.items():
        click.echo(f"tracekit: skipped {', '.join(names)}: {why}; see `tracekit doctor`", err=True)


def _table(workloads: list[Workload]) -> dict[str, tuple[str, str]]:
    """Return the columns of the table; the source only if other packages provide workloads."""
    from tracekit.workloads.base import BUILT_IN

    same = all(workload.source == BUILT_IN for workload in workloads)
    return {name: column for name, column in _TABLE.items() if not (same and name == "source")}


def _sort_key(workload: Workload) -> tuple[int, str]:
    """Sort by domain in the order of `DOMAINS`, others last, then by name."""
    from tracekit.workloads.base import DOMAINS

    is_listed = workload.domain in DOMAINS
    return DOMAINS.index(workload.domain) if is_listed else len(DOMAINS), workload.name


def _plain(value: Any) -> Any:
    """Convert nested mappings and tuples to JSON types."""
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _abbreviate_levels(levels: list[str]) -> str:
    """Abbreviate a list of levels."""
    from tracekit.workloads.base import LEVELS

    missing = [level for level in LEVELS if level not in levels]
    if len(missing) > 1 or len(levels) + len(missing) > len(LEVELS):
        return ", ".join(levels)
    return f"all but {missing[0]}" if missing else "all"


def _text(value: Any) -> Any:
    """Format a list or mapping as text."""
    if isinstance(value, dict):
        nested = any(isinstance(item, dict) for item in value.values())
        return ("; " if nested else ", ").join(_pair(name, item) for name, item in value.items())
    return ", ".join(value) if isinstance(value, list) else value


def _pair(name: str, value: Any) -> str:
    return f"{name}: {_text(value)}" if isinstance(value, dict) else f"{name} {value}"
