"""`tracekit show`: print the metadata of a run."""

from __future__ import annotations

from tracekit import render
from tracekit.cli import completion
from tracekit.cli import lazy_click as click
from tracekit.cli.options import format_option, open_store, store_option


@click.command("show")
@click.argument("run", default="latest", shell_complete=completion.run)
@format_option
@store_option
def command(*, run: str, output_format: str, store: str | None) -> None:
    """Show the metadata of RUN (default `latest`): origin, tables, timings, environment, diagnostics.

    RUN is a run id or a unique prefix, `latest`, `latest~N`, a label, `git:REV`, a path to a run, or a path
    to a raw trace, which is imported first.

    CSV: one `name,value` line per field of `run.json`. JSON: {"schema": "tracekit.show/1", "run": {the
    content of `run.json`}}.
    """
    import msgspec

    from tracekit.ingest.references import resolve
    from tracekit.render.facts import FACT, flatten, sections

    meta = resolve(open_store(store), run).meta
    if output_format == "json":
        click.echo(render.json_text("show", run=msgspec.to_builtins(meta)), nl=False)
    elif output_format == "csv":
        click.echo(render.rows(flatten(msgspec.to_builtins(meta)), FACT, "csv", command="show"), nl=False)
    else:
        texts = [
            render.rows(part.rows, part.columns, output_format, command="show", title=part.title, limit=0)
            for part in sections(meta)
        ]
        click.echo("\n".join(texts), nl=False)
