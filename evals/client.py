"""A client without a model that follows the order of the skill (`tracekit/agents/SKILL.md`), over real pipes.

    python -m evals.client CONFIG < PROMPT

As a program it is a model command like any other (`python -m evals --model`): it reads the prompt, starts the
server of the configuration, and prints its answer.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from mcp import Client, StdioServerParameters, stdio_client

from evals.cases import CANNOT_TELL
from tracekit.agents.replies import estimate_tokens

MAX_CAUSES = 3
_BOUND = re.compile(r"^bound: (.+)$", re.MULTILINE)
_FINDING = re.compile(r"^(\d+)\. (HIGH|WARN|INFO) (\w+):", re.MULTILINE)
_REMEDY = re.compile(r"^also (\w+):", re.MULTILINE)
_TABLE = re.compile(r"^table (\w+): .*\n.*\n((?:.* \| .*\n?)+)", re.MULTILINE)
_MEMORY = re.compile(r"^(device_peak|host_peak) \| .* \| \+?(\d+\.\d)% \|", re.MULTILINE)
_MIN_GROWTH = 1.0
"""Growth of memory that is named, in percent."""
_UNITS = {"ns": 1, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


@dataclass
class Diagnosis:
    """What a client answers.

    Attributes:
        bound: What bounds the run; `CANNOT_TELL` if it is not known.
        causes: Codes of findings, or names of what changed, the first cause first.
        high: Codes of the causes that are claimed to be serious.
    """

    bound: str = ""
    causes: list[str] = field(default_factory=list)
    high: list[str] = field(default_factory=list)

    @property
    def claims(self) -> list[str]:
        """All that it names as causes."""
        return [*self.causes, *([self.bound] if self.bound else [])]


@dataclass
class Session:
    """A session with the server; counts calls of tools and tokens of requests and replies."""

    client: Client
    calls: int = 0
    tokens: int = 0

    async def call(self, tool: str, **arguments: object) -> str:
        """Call a tool and return its reply, also if that is an error."""
        result = await self.client.call_tool(tool, arguments)
        text = "".join(content.text for content in result.content if content.type == "text")
        self.calls += 1
        self.tokens += estimate_tokens(text) + estimate_tokens(json.dumps([tool, arguments]))
        return text


@asynccontextmanager
async def connect(command: Sequence[str]) -> AsyncIterator[Session]:
    """Start a server by its command, and hold a session with it over pipes."""
    server = StdioServerParameters(command=command[0], args=list(command[1:]), env=dict(os.environ))
    async with Client(stdio_client(server)) as client:
        yield Session(client)


async def diagnose(session: Session, runs: Sequence[str]) -> Diagnosis:
    """Diagnose a run, or the difference of two runs.

    Args:
        session: The session.
        runs: References to the run, or to base and head.
    """
    if len(runs) == 2:
        return read_difference(await session.call("diff", base=runs[0], head=runs[1]))
    (run,) = runs
    verdict = await session.call("verdict", run=run)
    bound = _BOUND.search(verdict)
    if bound is None or "integrity: misleading" in verdict:
        await session.call("what_to_record", run=run)
        return Diagnosis(CANNOT_TELL)
    behind = _FINDING.findall(verdict)
    serious = [finding for finding in behind if finding[1] != "INFO"]
    diagnosis = Diagnosis(bound[1])
    for number, severity, code in (serious or behind)[:MAX_CAUSES]:
        explained = await session.call("explain", run=run, finding=int(number))
        if f" {code}: " not in explained:
            continue  # no claim without its evidence
        told = [code, *_REMEDY.findall(explained)]
        diagnosis.causes += [name for name in told if name not in diagnosis.causes]
        diagnosis.high += [code] if severity == "HIGH" else []
    diagnosis.causes += [
        code for _, severity, code in behind if severity == "INFO" and code not in diagnosis.causes
    ]
    diagnosis.causes = diagnosis.causes[:MAX_CAUSES]
    if bound[1] == CANNOT_TELL and not diagnosis.causes:
        await session.call("what_to_record", run=run)
    return diagnosis


def read_difference(reply: str) -> Diagnosis:
    """Return what changed between two runs, by the reply of `diff`: causes, parts of the step, memory."""
    tables = {name: rows.strip().splitlines() for name, rows in _TABLE.findall(reply)}
    changed = [row.split(" | ")[0].strip("⟦⟧") for row in tables.get("causes", [])[:MAX_CAUSES]]
    if not changed:
        parts = [row.split(" | ") for row in tables.get("wall", []) if not row.startswith("step ")]
        grown = [cells for cells in parts if len(cells) > 3 and _ns(cells[3]) > 0]
        changed = [max(grown, key=lambda cells: _ns(cells[3]))[0].strip("⟦⟧")] if grown else []
    changed += [name for name, growth in _MEMORY.findall(reply) if float(growth) >= _MIN_GROWTH]
    return Diagnosis("", changed)


def _ns(text: str) -> float:
    """Return a duration with its unit in ns; 0 for another text."""
    match = re.fullmatch(r"(-?[\d,.]+) (ns|µs|ms|s)", text)
    return float(match[1].replace(",", "")) * _UNITS[match[2]] if match else 0.0


async def _answer(config: Path, prompt: str) -> None:
    (server,) = json.loads(config.read_text())["mcpServers"].values()
    runs = re.findall(r"^(?:RUN|BASE|HEAD): (.+)$", prompt, re.MULTILINE)
    async with connect([server["command"], *server["args"]]) as session:
        diagnosis = await diagnose(session, runs)
    print(json.dumps({"bound": diagnosis.bound, "causes": diagnosis.causes, "high": diagnosis.high}))


if __name__ == "__main__":
    anyio.run(_answer, Path(sys.argv[1]), sys.stdin.read())
