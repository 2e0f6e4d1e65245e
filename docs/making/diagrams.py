"""Draw Mermaid blocks and figures of analyses at build time, so that pages load no external script."""

from __future__ import annotations

import re
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import mermaidx
from tracekit.dashboards.exports.report import STYLES, draw

from tracekit.analysis import analyze_each, available
from tracekit.cli.sample import FOLDER
from tracekit.errors import TracekitError
from tracekit.ingest import artifacts
from tracekit.ingest.importer import import_each
from tracekit.render.cells import escape_prose
from tracekit.runs.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.runs.run import Run

_BLOCK = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SAMPLES = ("loader", "compiled", "job", "training", "server")
"""Samples of which figures are drawn, each analysis of the first one that gives a figure."""


def drawn(markdown: str) -> str:
    """Replace the Mermaid blocks of a page by drawings, whose colors are in `stylesheets/site.css`."""
    numbers = iter(range(len(markdown)))
    return _BLOCK.sub(lambda block: _figure(block[1], f"diagram-{next(numbers)}"), markdown)


def with_example(markdown: str, analysis: str) -> str:
    """Return the page of an analysis with its figure of a sample, unless the page has a picture."""
    if "![" in markdown or analysis not in _examples():
        return markdown
    before, heading, after = markdown.partition("\n## In Python\n")
    return f"{before}\n## Example\n\n{_examples()[analysis]}\n{heading}{after}"


@cache
def _examples() -> dict[str, str]:
    """Return the figure of each analysis with its caption."""
    examples: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as name:
        for sample, run in _runs(Store(Path(name))):
            left = [one.name for one in available() if one.name not in examples]
            for one, result in analyze_each(run, left):
                picture, caption = draw(one, result)
                if picture:
                    styles = f"<style>{STYLES.read_text(encoding='utf-8')}</style>"
                    figure = f'<div class="figure" markdown="0">{styles}{picture}</div>'
                    examples[one.name] = f"{figure}\n\n{escape_prose(caption)} (`tracekit sample {sample}`)\n"
    return examples


def _runs(store: Store) -> Iterator[tuple[str, Run]]:
    for sample in _SAMPLES:
        source = next(path for path in (FOLDER / f"{sample}.json.gz", FOLDER / sample) if path.exists())
        is_compiled = (source / "torch_trace.log").is_file()
        kernels = artifacts.read(source) if is_compiled else ()
        for outcome in import_each(
            store, [source / "trace.json.gz" if is_compiled else source], kernels=kernels
        ):
            if isinstance(outcome, TracekitError):
                raise outcome
            yield sample, outcome


def _figure(source: str, name: str) -> str:
    svg = _svg(source).replace("my-svg", name)  # unique on its page
    return f'<div class="diagram" markdown="0">{svg}</div>'


@cache
def _svg(source: str) -> str:
    return str(mermaidx.render(source).svg())
