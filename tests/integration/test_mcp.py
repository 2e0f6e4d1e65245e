"""The server for agents over real pipes and HTTP, with the client of the official SDK."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

pytest.importorskip("mcp")

import httpx2
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.traces import kernels_text
from tracekit.agents.replies import MAX_BYTES
from tracekit.agents.server import TOKEN
from tracekit.runs.store import Store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

ROOT = Path(__file__).parents[2]
TRACEKIT = ["-c", "from tracekit.cli.main import main; main()"]
TRACES = [
    ROOT / "samples" / "recorded" / name / "trace.json.gz"
    for name in ("mnist_cnn-train-cuda", "gpt-train-compile-cuda", "dlrm-train-cpu")
]
WITHOUT_FINDINGS = "dlrm-train-cpu"
WRITING = {"collect", "try_changes", "ab", "delete_run"}


@asynccontextmanager
async def session(store: Path, *options: str) -> AsyncIterator[Client]:
    arguments = [*TRACEKIT, "mcp", "--store", str(store), *options]
    server = StdioServerParameters(command=sys.executable, args=arguments, env=dict(os.environ))
    async with Client(stdio_client(server)) as client:
        yield client


async def call(client: Client, tool: str, **arguments: object) -> tuple[str, bool]:
    result = await client.call_tool(tool, arguments)
    (content,) = result.content
    return content.text, bool(result.is_error)  # type: ignore[union-attr]


def held(store: Path, work: Callable[[Client], Awaitable[None]], *options: str) -> None:
    """Hold a session in which some work is done."""

    async def run() -> None:
        async with session(store, *options) as client:
            await work(client)

    anyio.run(run)


def test_a_session_reads_and_is_refused_what_writes(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    trace.write_text(kernels_text())

    async def work(client: Client) -> None:
        assert "never instructions" in (client.instructions or "")
        tools = (await client.list_tools()).tools
        assert not WRITING & {tool.name for tool in tools}
        read_only = {tool.name: tool.annotations and tool.annotations.read_only_hint for tool in tools}
        assert [name for name, reads in read_only.items() if not reads] == ["import_traces"]
        text, failed = await call(client, "import_traces", paths=[str(trace)], label="mine")
        assert not failed
        assert "label mine" in text
        for tool in WRITING:
            refused, failed = await call(client, tool, run="latest")
            assert failed
            assert f"Unknown tool: {tool}" in refused
        text, failed = await call(client, "verdict", run="yesterday")
        assert failed
        assert "no run, label or file matches 'yesterday'" in text

    held(tmp_path / "store", work)
    assert len(Store(tmp_path / "store").runs()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("trace", TRACES, ids=lambda path: path.parent.name)
def test_a_session_for_a_real_trace(trace: Path, tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        run = str(trace)
        replies = [
            await call(client, "verdict", run=run),
            await call(client, "findings", run=run),
            await call(client, "what_to_record", run=run),
            await call(client, "analyze", name="ops", run=run),
            await call(client, "timeline", run=run, tracks="all"),
            await call(
                client, "query", run=run, sql="SELECT kind, count(*) n FROM host_intervals GROUP BY ALL"
            ),
            await call(client, "diff", base=run, head=run),
        ]
        if trace.parent.name != WITHOUT_FINDINGS:
            replies.append(await call(client, "explain", run=run, finding=1))
        assert not any(failed for _, failed in replies)
        assert all(len(text.encode()) <= MAX_BYTES for text, _ in replies)
        assert "bound: cannot tell" not in replies[0][0]
        start = re.search(r"continue with start=(\d+)", replies[4][0])
        assert start
        following, failed = await call(client, "timeline", run=run, tracks="all", start=int(start[1]))
        assert not failed
        assert f"intervals {int(start[1]) + 1:,} to" in following

    held(tmp_path / "store", work)


@pytest.mark.slow
def test_allowed_tools_collect_and_delete(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    program = tmp_path / "program.py"
    program.write_text(
        "import torch\nlayer = torch.nn.Linear(64, 64)\nfor _ in range(90):\n    layer(torch.ones(64, 64))\n"
    )

    async def work(client: Client) -> None:
        assert {tool.name for tool in (await client.list_tools()).tools} >= WRITING
        words = [sys.executable, str(program)]
        text, failed = await call(client, "collect", command=words, label="mine")
        assert not failed
        assert "tracekit collect: exit code 0" in text, text
        assert "label mine" in (await call(client, "list_runs"))[0]
        text, failed = await call(client, "delete_run", run="latest")
        assert not failed
        assert "tracekit rm: exit code 0" in text, text
        assert (await call(client, "list_runs"))[0].splitlines()[1] == "0 runs in the store"

    held(tmp_path / "store", work, "--allow-collect", "--allow-delete")


@pytest.mark.slow
def test_over_http_a_token_and_the_name_of_this_machine_are_required(tmp_path: Path) -> None:
    command = [sys.executable, *TRACEKIT, "mcp", "--http", "--port", "0", "--store", str(tmp_path / "store")]
    environment = os.environ | {TOKEN: "secret"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as server:
        try:
            assert server.stderr is not None
            ready = server.stderr.readline()
            address = re.search(r"http://127\.0\.0\.1:\d+/mcp", ready)
            assert address
            assert "Bearer secret" in ready
            shown = {"Authorization": "Bearer secret"}
            for headers in ({}, {"Authorization": "Bearer wrong"}):
                assert httpx2.post(address[0], json={}, headers=headers).status_code == 401
            elsewhere = shown | {"Host": "attacker.example"}
            assert httpx2.post(address[0], json={}, headers=elsewhere).status_code == 421

            async def run() -> None:
                async with (
                    httpx2.AsyncClient(headers=shown) as http,
                    Client(streamable_http_client(address[0], http_client=http)) as client,
                ):
                    text, failed = await call(client, "list_runs")
                    assert not failed
                    assert "0 runs in the store" in text

            anyio.run(run)
        finally:
            server.terminate()


def test_the_skill_is_installed_and_names_tools_that_exist(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from tracekit.agents.tools import ReadTools, reading_tools
    from tracekit.cli.skill import command

    done = CliRunner().invoke(command, ["--install", str(tmp_path)])
    assert done.exit_code == 0, done.output
    text = (tmp_path / "tracekit" / "SKILL.md").read_text(encoding="utf-8")
    assert text == files("tracekit.agents").joinpath("SKILL.md").read_text(encoding="utf-8")
    tools = {tool.__name__ for tool, _ in reading_tools(ReadTools(Store(tmp_path)))} | WRITING
    called = set(re.findall(r"`(\w+)\(", text))
    assert called
    assert called <= tools
