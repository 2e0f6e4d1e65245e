"""Throw damaged and hostile inputs at a reader, and keep those that find a defect.

    just fuzz kineto --inputs 100000       traces of torch.profiler, plain and gzipped
    just fuzz nsys --seed 7                exports of Nsight Systems, SQLite and Parquet
    just fuzz store                        runs in a store, asked for by commands
    python -m fuzz replay FILE...          read inputs that were kept, in this process
    python -m fuzz.guided kineto           look for new paths through the code, by coverage (atheris)

A defect is anything but a run that holds together or an error of one line: another exception, a process that
dies, over 10 s for one input, more memory than --memory allows. Every input follows from reader, seed and
number. The exit code is 1 when there is a defect.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from fuzz.case import unpacked
from fuzz.readers import READERS, reader
from fuzz.watch import SECONDS, Outcome, fuzz
from fuzz.worker import Task

MEMORY_MIB = 512


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="just fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = made.add_argument
    add("reader", choices=(*READERS, "replay"), metavar="READER", help=", ".join(READERS))
    add("files", nargs="*", metavar="FILE", help="inputs to replay")
    add("--inputs", type=int, default=1000, metavar="N", help="how many inputs; default 1000")
    add("--seed", type=int, default=0, metavar="S", help="another seed makes other inputs; default 0")
    add("--first", type=int, default=0, metavar="NUMBER", help="begin with the input of this number")
    add("--seconds", type=float, default=SECONDS, help="how long one input may take; default 10")
    add("--memory", type=int, default=MEMORY_MIB, metavar="MIB", help="what one input may add; default 512")
    add("--found", default=".fuzz", metavar="DIR", help="where inputs that found a defect go; default .fuzz/")
    return made


def main(arguments: list[str]) -> int:
    """Run the command line; returns the exit code."""
    given = parser().parse_args(arguments)
    if given.reader == "replay":
        return replayed([Path(name) for name in given.files])
    return _fuzzed(given)


def replayed(paths: list[Path]) -> int:
    """Read inputs that were kept; their names begin with their reader's."""
    for path in paths:
        with TemporaryDirectory(prefix="tracekit-fuzz-") as folder:
            reader(path.name.partition("-")[0]).read(unpacked(path.read_bytes()), Path(folder))
        print(f"{path.name}: fine")
    return 0


def _fuzzed(given: argparse.Namespace) -> int:
    task = Task(
        reader=given.reader,
        seed=given.seed,
        first=given.first,
        stop=given.first + given.inputs,
        memory=given.memory << 20,
        work="",
        found=str(Path(given.found) / given.reader),
    )
    shown = _shown if sys.stderr.isatty() else lambda _: None
    outcome = fuzz(task, seconds=given.seconds, progress=shown)
    print(summary(outcome))
    if outcome.found:
        print(f"inputs: {task.found}")
    return 1 if outcome.found else 0


def _shown(number: int) -> None:
    print(f"\rinput {number:,}", end="", file=sys.stderr, flush=True)


def summary(outcome: Outcome) -> str:
    """What came of it, in lines."""
    rate = outcome.inputs / max(outcome.seconds, 1e-9)
    lines = [
        f"{outcome.inputs:,} inputs, {outcome.accepted:,} of them accepted, in {outcome.seconds:,.0f} s "
        f"({rate:,.0f} a second)"
    ]
    lines += [f"{count:,} x {kind}" for kind, count in outcome.found.items()]
    return "\n".join(lines if outcome.found else [*lines, "no defect"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
