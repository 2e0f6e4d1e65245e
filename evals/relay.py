"""Start a server of the Model Context Protocol and log the tools that a client calls, with their tokens.

    python -m evals.relay LOG COMMAND...

A model command starts this in place of the server, so that its calls are counted whatever it says of them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

from tracekit.agents.replies import estimate_tokens


def main(log: Path, command: list[str]) -> int:
    """Pass lines between stdin, stdout and the server; log a line of JSON per call of a tool."""
    asked: dict[object, tuple[str, int]] = {}

    def forward() -> None:
        assert server.stdin is not None  # noqa: S101 (it is a pipe)
        for line in sys.stdin.buffer:
            message = json.loads(line)
            if message.get("method") == "tools/call":
                asked[message["id"]] = (
                    message["params"]["name"],
                    estimate_tokens(json.dumps(message["params"])),
                )
            server.stdin.write(line)
            server.stdin.flush()
        server.stdin.close()

    with (
        log.open("a", encoding="utf-8") as record,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server,
    ):
        threading.Thread(target=forward, daemon=True).start()
        assert server.stdout is not None  # noqa: S101 (it is a pipe)
        for line in server.stdout:
            message = json.loads(line)
            if message.get("id") in asked:
                tool, tokens = asked.pop(message["id"])
                text = "".join(part.get("text", "") for part in message.get("result", {}).get("content", []))
                record.write(json.dumps({"tool": tool, "tokens": tokens + estimate_tokens(text)}) + "\n")
                record.flush()
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
    return server.returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
