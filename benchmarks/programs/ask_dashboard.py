"""Start `tracekit dashboard` on a store and request every block of every page twice.

    ask_dashboard.py STORE RUN [PAGE...]

`PAGE_first_ms` is the time of a page's blocks on the first request, `PAGE_again_ms` on the second, without
rendering in a browser; `PAGE_cpu_s` the CPU time of both in the server and its processes.
"""

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
from tracekit.dashboards.analysis_pages.pages import load_pages

_SERVE = "from tracekit.cli.main import main; main()"
BLOCK = '"type":"block"'


@contextmanager
def serving(store: str) -> Iterator[tuple[psutil.Process, str]]:
    """The process and the address of the command that people run."""
    command = [sys.executable, "-P", "-c", _SERVE, "dashboard", "--port", "0", "--store", store]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        words = process.stdout.readline().split() if process.stdout else []
        yield psutil.Process(process.pid), next(word for word in words if word.startswith("http"))
    finally:
        process.terminate()
        process.wait()


def fetched(address: str, body: object = None) -> bytes:
    """The answer to a question."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"Content-Type": "application/json"})  # noqa: S310
    with urllib.request.urlopen(request) as answer:  # noqa: S310
        return bytes(answer.read())


def question(output: str, page: str, block: str, run: str) -> dict[str, object]:
    """What a browser sends so that one block of a page is filled."""
    place = {"type": "block", "page": page, "name": block}
    view = {"path": f"/{page}", "search": f"?run={run}"}
    return {
        "output": output,
        "outputs": [{"id": place, "property": name} for name in ("children", "aria-busy")],
        "inputs": [
            {"id": "view", "property": "data", "value": view},
            {"id": "theme", "property": "data", "value": "light"},
            {"id": {**place, "type": "again"}, "property": "data"},
        ],
        "state": [{"id": place, "property": "id", "value": place}],
        "changedPropIds": ["view.data"],
    }


def asked(address: str, output: str, page: str, blocks: list[str], run: str) -> tuple[float, int, int]:
    """Milliseconds, bytes and failures of a page's blocks."""
    start = time.perf_counter()
    answers = [
        fetched(f"{address}_dash-update-component", question(output, page, block, run)) for block in blocks
    ]
    took = (time.perf_counter() - start) * 1e3
    return took, sum(map(len, answers)), sum(b"tk-error" in answer for answer in answers)


def cpu_seconds(server: psutil.Process) -> float:
    """CPU time of a process and all that it started."""
    processes = [server, *server.children(recursive=True)]
    own = [times.user + times.system for times in (process.cpu_times() for process in processes)]
    ended = server.cpu_times()
    return float(sum(own) + ended.children_user + ended.children_system)


def main() -> None:
    """Ask and print."""
    store, run, *asked_for = sys.argv[1:]
    pages = {
        name: list(page.blocks)
        for name, page in sorted(load_pages().items())
        if page.blocks and (name in asked_for or not asked_for)
    }
    figures: dict[str, float] = {"failures": 0}
    with serving(store) as (server, address):
        figures["index_ms"] = _page(address)
        entries = json.loads(fetched(f"{address}_dash-dependencies"))
        output = next(entry["output"] for entry in entries if BLOCK in entry["output"])
        for page, blocks in pages.items():
            before = cpu_seconds(server)
            for time_ in ("first", "again"):
                took, size, failures = asked(address, output, page, blocks, run)
                figures[f"{page}_{time_}_ms"] = took
                figures["failures"] += failures
            figures[f"{page}_kb"] = size / 1e3
            figures[f"{page}_cpu_s"] = max(0.0, cpu_seconds(server) - before)
    print(json.dumps(figures))


def _page(address: str) -> float:
    start = time.perf_counter()
    fetched(address)
    return (time.perf_counter() - start) * 1e3


if __name__ == "__main__":
    main()
