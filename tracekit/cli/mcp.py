"""`tracekit mcp`: serve runs to coding agents."""

from __future__ import annotations

from tracekit.cli import lazy_click as click
from tracekit.cli.options import open_store, store_option
from tracekit.cli.progress import stop_on_interrupt
from tracekit.registry import import_extra


@click.command("mcp")
@click.option("--http", is_flag=True, help="Serve over HTTP on 127.0.0.1 instead of stdin and stdout.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8051,
    show_default=True,
    help="Port of --http; 0 picks a free one.",
)
@click.option(
    "--allow-collect", is_flag=True, help="Offer tools that run programs: collect, try_changes, ab."
)
@click.option("--allow-delete", is_flag=True, help="Offer the tool that deletes a run.")
@store_option
def command(*, http: bool, port: int, allow_collect: bool, allow_delete: bool, store: str | None) -> None:
    """Serve runs to coding agents over the Model Context Protocol.

    By default, tools only read runs and import traces. An agent starts this command itself, over stdin and
    stdout; with --http it sends the printed token, or that of $TRACEKIT_TOKEN, as `Authorization: Bearer`.
    Replies have at most about 4,000 tokens and can be paged. Names from traces are marked as data.

    \b
    claude mcp add tracekit -- tracekit mcp
    tracekit mcp --http --port 0
    """  # noqa: D301 (click reads the \b)
    server = import_extra("tracekit.agents.server", "the server for agents needs")
    served = server.create_server(open_store(store), allow_collect=allow_collect, allow_delete=allow_delete)
    with stop_on_interrupt():
        if not http:
            server.serve_stdio(served)
            return
        server.serve_http(
            served,
            port,
            lambda address, token: click.echo(
                f"tracekit mcp: {address} (Authorization: Bearer {token}; press Ctrl-C to stop)", err=True
            ),
        )
