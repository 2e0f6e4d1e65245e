"""Measure how the cost of imports, findings and pages grows with traces of one extreme shape.

    python -m benchmarks.shapes [--sizes 10 100] [SHAPE ...]

Each shape is a trace with so many thousand of one thing: streams, names, steps, nested modules. CPU time and
peak memory are those of processes of their own, `pages` those of the dashboard, of which the costliest page
is named; the exponent is that of the CPU time beyond a tiny trace, between neighboring sizes, for pages also
that of each. The exit code is 1 if an exponent is above 1.1, memory is above its limit, or a page fails.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.dashboard import SERVE
from benchmarks.runner import Cost, Failure, Limits, measure
from tracekit.runs.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

MAX_EXPONENT = 1.1
NOISE_S = 0.5
"""Differences between starts of a command: less CPU time beyond a tiny trace counts as this."""
LIMITS = Limits(wall_s=600, memory_mb=8_000)
BASE_MB, MB_PER_MB = 600, 8
"""Limit of memory: that of a tiny trace and the arrays of a window, and bytes for each byte of the trace."""

ASK = Path(__file__).parent / "programs" / "ask_dashboard.py"
CPU = "_cpu_s"

Event = dict[str, Any]


def _event(category: str, name: str, start: float, duration: float, tid: Any = 1, **args: Any) -> Event:
    pid = args.pop("pid", 100)
    times = {"ts": 1_000_000 + start, "dur": duration}
    return {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, **times, "args": args}


def _launched(number: int, *, name: str = "k", **place: Any) -> Iterator[Event]:
    """A call every 10 µs, and its kernel."""
    pid = place.pop("pid", 100)
    launch = {"correlation": number + 1, "External id": number + 1}
    device = {"device": 0, "stream": 7, "context": 1, **launch, **place}
    yield _event("cpu_op", "aten::mm", 10 * number, 8, pid=pid, **{"External id": number + 1})
    yield _event("cuda_runtime", "cudaLaunchKernel", 10 * number + 2, 3, pid=pid, **launch)
    start, shape = 10 * number + 6, {"grid": [8, 1, 1], "block": [64, 1, 1]}
    yield _event("kernel", name, start, 9, place.get("stream", 7), pid=device["device"], **device, **shape)


def _nested(count: int, category: str, name: Callable[[int], str]) -> Iterator[Event]:
    """Intervals inside of each other, around a launch."""
    length = 2 * count + 20
    for depth in range(count):
        yield _event(category, name(depth), depth, length - 2 * depth)
    yield _event("cpu_op", "aten::mm", count + 2, 8, **{"External id": 1})
    yield _event("cuda_runtime", "cudaLaunchKernel", count + 4, 2, correlation=1)
    yield _event("kernel", "k", count + 8, 5, 7, device=0, stream=7, correlation=1)


def _launches(count: int, **place: Callable[[int], Any]) -> Iterator[Event]:
    for number in range(count):
        yield from _launched(number, **{name: value(number) for name, value in place.items()})


def _steps(count: int) -> Iterator[Event]:
    for number in range(count):
        yield _event("user_annotation", f"ProfilerStep#{number}", 10 * number, 10)
        yield from _launched(number)


def _same_id(count: int) -> Iterator[Event]:
    yield _event("cuda_runtime", "cudaGraphLaunch", 0, 3, correlation=1)
    for number in range(count):
        yield _event("kernel", "k", 10 * number, 5, 7, device=0, stream=7, correlation=1)


def _overlaps(count: int) -> Iterator[Event]:
    for number in range(count):
        yield _event("kernel", "k", number, 2 * count, number % 64, device=0, stream=number % 64)


def _counters(count: int) -> Iterator[Event]:
    yield from _launched(0)
    for number in range(count):
        yield {"ph": "C", "name": f"c{number}", "pid": 0, "ts": 1_000_000 + number, "args": {"v": number}}


def _modules(count: int, *, is_nested: bool) -> Iterator[Event]:
    if is_nested:
        yield from _nested(count, "python_function", lambda depth: f"nn.Module: Linear_{depth}")
        return
    for number in range(count):
        yield _event("python_function", f"nn.Module: Linear_{number}", 10 * number, 9)
        yield from _launched(number)


SHAPES: Mapping[str, Callable[[int], Iterator[Event]]] = {
    "launches": _launches,
    "streams": lambda count: _launches(count, stream=lambda number: number),
    "devices": lambda count: _launches(count, device=lambda number: number % max(1, count // 100)),
    "processes": lambda count: _launches(count, pid=lambda number: 1_000 + number),
    "kernel names": lambda count: _launches(count, name=lambda number: f"kernel_{number}"),
    "one id": _same_id,
    "steps": _steps,
    "depth of ops": lambda count: _nested(count, "cpu_op", lambda depth: f"aten::op{depth % 9}"),
    "depth of Python": lambda count: _nested(count, "python_function", lambda depth: f"f.py({depth}): g"),
    "nested modules": lambda count: _modules(count, is_nested=True),
    "modules": lambda count: _modules(count, is_nested=False),
    "overlaps": _overlaps,
    "counters": _counters,
    "long names": lambda count: _launches(count // 1_000, name=lambda number: f"{number}_" + 100_000 * "x"),
    "nesting before": lambda _: _launched(0),
}
"""Events of each shape, by the number of its things; a hundredth devices, a thousandth long names."""


def write_trace(path: Path, shape: str, count: int) -> None:
    """Write a trace of a shape."""
    with path.open("w") as file:
        before = (
            '"nested":' + "[" * (count * 10) + "]" * (count * 10) + "," if shape == "nesting before" else ""
        )
        file.write("{" + before + '"traceEvents":[')
        for number, event in enumerate(SHAPES[shape](count)):
            file.write(",\n" * (number > 0) + json.dumps(event))
        file.write("]}")


def run_command(*arguments: str) -> Cost | Failure:
    """Measure a command in a process of its own."""
    return measure([sys.executable, "-c", SERVE, *arguments], limits=LIMITS)


def measure_shape(shape: str, count: int, folder: Path) -> tuple[float, dict[str, Cost | Failure]]:
    """Measure import and findings of a shape.

    Returns:
        Megabytes of the trace, and the costs.
    """
    trace, store = folder / "trace.json", folder / f"store-{count}"
    write_trace(trace, shape, count)
    imported = run_command("import", str(trace), "--store", str(store), "--label", "shape")
    costs = {"import": imported}
    if isinstance(imported, Cost):
        costs["findings"] = run_command("findings", "shape", "--store", str(store), "--format", "json")
        asked = [sys.executable, str(ASK), str(store), Store(store).resolve("shape").path.name]
        costs["pages"] = measure(asked, limits=LIMITS)
    return trace.stat().st_size / 1e6, costs


def report(shape: str, sizes: list[int]) -> int:
    """Print the costs of a shape; return the number of limits that it exceeds."""
    exceeded = 0
    before: dict[str, tuple[int, float]] = {}
    with tempfile.TemporaryDirectory(prefix="tracekit-shapes-") as name:
        _, tiny = measure_shape(shape, 10, Path(name))
        for size in sizes:
            megabytes, costs = measure_shape(shape, 1_000 * size, Path(name))
            for command, cost in costs.items():
                print(f"{shape:17}{size:6,}k{megabytes:8.1f} MB  {command:9}", end="")
                if isinstance(cost, Failure):
                    print(f"  failed: {cost.reason}", flush=True)
                    exceeded += 1
                    continue
                start = tiny.get(command)
                least = seconds(start) if isinstance(start, Cost) else {}
                marks = ["memory"] * (cost.peak_mb > BASE_MB + MB_PER_MB * megabytes)
                exponents = {}
                for part, spent in seconds(cost).items():
                    beyond = max(spent - least.get(part, 0.0), NOISE_S)
                    exponents[part] = growth(before.get(command + part), size, beyond)
                    before[command + part] = size, beyond
                    marks += [f"steep {part}".strip()] * (exponents[part] > MAX_EXPONENT)
                failed = cost.reported.get("failures", 0)
                marks += [f"{failed:.0f} blocks failed"] * bool(failed)
                exceeded += len(marks)
                text = f"{cost.cpu_s:8.2f} s{exponents['']:7.2f}{cost.peak_mb:8.0f} MB  {costliest(cost)}"
                print(text + "  ".join(marks), flush=True)
    return exceeded


def seconds(cost: Cost) -> dict[str, float]:
    """CPU time of a command, under an empty name, and of each page that it reports."""
    return {
        "": cost.cpu_s,
        **{name.removesuffix(CPU): spent for name, spent in cost.reported.items() if name.endswith(CPU)},
    }


def growth(earlier: tuple[int, float] | None, size: int, beyond: float) -> float:
    """Exponent of the time beyond a tiny trace since a smaller size; NaN at the first."""
    if earlier is None:
        return math.nan
    return math.log(beyond / earlier[1]) / math.log(size / earlier[0])


def costliest(cost: Cost) -> str:
    """Name and CPU time of the page that took most; empty for a command without pages."""
    pages = {name: spent for name, spent in seconds(cost).items() if name}
    return "".join(f"{name} {pages[name]:.1f} s  " for name in sorted(pages, key=pages.__getitem__)[-1:])


def main() -> None:
    """Measure the shapes and print the table; exit with 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("shapes", nargs="*", metavar="SHAPE", default=[], help=", ".join(SHAPES))
    parser.add_argument("--sizes", nargs="+", type=int, default=[10, 100], metavar="THOUSANDS")
    options = parser.parse_args()
    print(f"{'shape':17}{'size':>7}{'trace':>11}  {'command':9}{'CPU':>10}{'exp.':>7}{'peak':>11}")
    sys.exit(min(1, sum([report(shape, sorted(options.sizes)) for shape in options.shapes or SHAPES])))


if __name__ == "__main__":
    main()
