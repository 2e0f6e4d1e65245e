"""Measure the costs of a cluster import on this machine, as JSON for `benchmarks.scale`.

    python -m benchmarks.scale_costs TRACE [--tasks 1024] [--ranks 1024] [--repeat 3] > costs.json

TRACE is one rank's trace, for example from `benchmarks.amplify`; results are per GB of it. Measured are:
empty tasks through `tracekit.executors` on a local cluster; decoding and writing one rank, each in a worker
process with one thread (CPU seconds and memory of that process); survey and commit of `--ranks` small files.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.inputs import simulated_trace
from benchmarks.runner import peak_memory
from tracekit.executors import workers
from tracekit.ingest.importer import cluster
from tracekit.ingest.importer.execution import Decoded, Destination
from tracekit.ingest.jobs.sources import Source
from tracekit.ingest.jobs.survey import plan
from tracekit.runs.meta import Collector, PartFile, RunMeta
from tracekit.runs.store import Store, new_run_id, timestamp
from tracekit.runs.tables import WrittenFile, describe_file
from tracekit.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def nothing(number: int) -> int:
    """Do nothing: the empty task."""
    return number


def empty_tasks(count: int, workers_: int) -> dict[str, float]:
    """Costs per empty task, submitted as imports do.

    Returns:
        `submit_s`: CPU seconds of driver, scheduler and nannies; `turn_s`: seconds until a worker has its
        next task.
    """
    from distributed import LocalCluster

    with (
        LocalCluster(
            n_workers=workers_, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        workers(cluster.scheduler_address) as executor,
    ):
        list(executor.map(nothing, range(100)))
        begun, cpu = time.perf_counter(), _cpu()
        assert len(list(executor.map(nothing, range(count)))) == count  # noqa: S101 (otherwise fewer were timed)
        found = {"submit_s": _cpu() - cpu, "turn_s": (time.perf_counter() - begun) * workers_}
    return {name: seconds / count for name, seconds in found.items()}


def metered(task: tuple[Callable[[Any], Any], Any]) -> tuple[Any, dict[str, float]]:
    """Result of a function, and its costs including child processes."""
    function, item = task
    begun, cpu = time.perf_counter(), _cpu()
    value = function(item)
    peak = peak_memory(os.getpid())
    return value, {"cpu_s": _cpu() - cpu, "wall_s": time.perf_counter() - begun, "peak_bytes": peak}


def _cpu() -> float:
    """CPU seconds of this process and its reaped children."""
    return sum(os.times()[:4])


def one_rank(trace: Path, folder: Path) -> dict[str, float]:
    """Costs of decoding and writing a trace, each in its own worker."""
    with Store(folder / "store").draft() as draft:
        spool = cluster.Spool(name=f"{cluster.PREFIX}measured", address=draft.address)
        source = Source(trace, 0)
        found, decoding = _in_worker(partial(cluster.decode, spool=spool), source)
        (decoded,) = found
        assert isinstance(decoded, Decoded)  # noqa: S101 (the trace is valid)
        spooled = _bytes(decoded.trace.directory)
        place = Destination(draft.path, 0, decoded.source, 0, 0, decoded.size.first_ns)
        written, writing = _in_worker(partial(cluster.write_parts, spool=spool), (decoded, place))
        cluster.clear(spool.name)
    per_gb = 1e9 / trace.stat().st_size
    found = {
        **{f"decode_{name}": value for name, value in decoding.items()},
        **{f"write_{name}": value for name, value in writing.items()},
        "spool_bytes": spooled,
        "stored_bytes": sum(one.file.bytes for one in written.delivered),
        "rows": sum(one.file.rows for one in written.delivered),
    }
    return {
        "measured_gigabytes": 1 / per_gb,
        **{name: value if name.endswith("peak_bytes") else value * per_gb for name, value in found.items()},
    }


def _in_worker(function: Callable[[Any], Any], item: Any) -> tuple[Any, dict[str, float]]:
    with workers(count=1) as executor:
        (outcome,) = executor.map(metered, [(function, item)])
        return outcome.get()


def _bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def survey(ranks: int, folder: Path) -> dict[str, float]:
    """Seconds per trace to find and group the traces of one folder."""
    first = simulated_trace(folder)
    (folder / "job").mkdir()
    for rank in range(ranks):
        shutil.copy(first, folder / "job" / f"rank{rank}.json")
    begun = time.perf_counter()
    (job,) = plan([folder / "job"])
    assert len(job.sources) == ranks  # noqa: S101 (otherwise fewer were timed)
    return {"survey_s": (time.perf_counter() - begun) / ranks}


def commit(ranks: int, folder: Path) -> dict[str, float]:
    """Seconds per rank to commit a run with a file per rank and table; and seconds to open it."""
    store = Store(folder / "store")
    now = timestamp(_now())
    with store.draft() as draft:
        delivered = list(_delivered(draft.path, ranks))
        meta = RunMeta(new_run_id("ranks", now=_now()), now, 0, Collector("import"))
        begun = time.perf_counter()
        run = draft.commit(meta, delivered)
        took = time.perf_counter() - begun
    begun = time.perf_counter()
    (listed,) = store.runs()
    assert listed.meta == run.meta  # noqa: S101 (the run that was committed)
    opened = time.perf_counter() - begun
    return {
        "commit_s": took / ranks,
        "manifest_bytes": (run.path / "run.json").stat().st_size,
        "open_s": opened,
    }


def _delivered(folder: Path, ranks: int) -> Iterator[WrittenFile]:
    import pyarrow.parquet as pq

    for name, table in TABLES.items():
        (folder / name).mkdir()
        first = folder / name / "part-00000.parquet"
        pq.write_table(table.arrow.empty_table(), first)
        described = describe_file(name, first).file
        for rank in range(ranks):
            part = first.with_name(f"part-{rank:05d}-0123456789abcdef.parquet")
            shutil.copy(first, part)
            yield WrittenFile(
                table=name, file=PartFile(part.name, described.rows, described.bytes, described.sha256)
            )
        first.unlink()


def _now() -> Any:
    from datetime import UTC, datetime

    return datetime.now(UTC)


def _median(measure: Callable[[Path], dict[str, float]], repeat: int) -> dict[str, float]:
    """Median of each number over repetitions, each in its own folder."""
    found = []
    for _ in range(repeat):
        with tempfile.TemporaryDirectory(prefix="tracekit-scale-") as folder:
            found.append(measure(Path(folder)))
        print(json.dumps(found[-1]), file=sys.stderr)
    return {name: statistics.median(one[name] for one in found) for name in found[0]}


def main() -> None:
    """Print the costs."""
    commands = argparse.ArgumentParser(prog="python -m benchmarks.scale_costs", description=__doc__)
    commands.add_argument("trace", type=Path)
    for name, default in {"tasks": 1024, "ranks": 1024, "workers": 2, "repeat": 3}.items():
        commands.add_argument(f"--{name}", type=int, default=default)
    options = commands.parse_args()
    costs = {
        **_median(lambda _: empty_tasks(options.tasks, options.workers), options.repeat),
        **_median(lambda folder: survey(options.ranks, folder), options.repeat),
        **_median(lambda folder: commit(options.ranks, folder), options.repeat),
        **_median(lambda folder: one_rank(options.trace, folder), options.repeat),
    }
    costs |= {"decode_s": costs["decode_cpu_s"], "write_s": costs["write_cpu_s"]}
    print(json.dumps(costs, indent=2))


if __name__ == "__main__":
    main()
