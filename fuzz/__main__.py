"""Fuzz a reader with damaged and hostile inputs, and save those that find a defect.

    just fuzz kineto --inputs 100000       traces of torch.profiler, plain and gzipped
    just fuzz nsys --seed 7                exports of Nsight Systems, SQLite and Parquet
    just fuzz query --inputs 20000         SQL statements from a grammar
    just fuzz routes --inputs 50000        requests to a running dashboard
    just fuzz store                        runs in a store, read by commands
    python -m fuzz replay FILE...          read saved inputs in this process
    python -m fuzz.guided kineto           coverage-guided fuzzing (atheris)

A reader must produce a consistent run or a one-line error. Anything else is a defect: another exception, a
crash, over 10 s for one input, more memory than --memory. Reader, seed and number determine an input. The
exit code is 1 if there is a defect.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from fuzz.case import unpack
from fuzz.readers import READERS, reader
from fuzz.supervisor import SECONDS, Outcome, fuzz
from fuzz.worker import Task

MEMORY_MIB = 512


def parser() -> argparse.ArgumentParser:
    """The command line."""
    commands = argparse.ArgumentParser(
        prog="just fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = commands.add_argument
    add("reader", choices=(*READERS, "replay"), metavar="READER", help=", ".join(READERS))
    add("files", nargs="*", metavar="FILE", help="inputs to replay")
    add("--inputs", type=int, default=1000, metavar="N", help="number of inputs (default: 1000)")
    add("--seed", type=int, default=0, metavar="S", help="seed of the inputs (default: 0)")
    add("--first", type=int, default=0, metavar="NUMBER", help="number of the first input")
    add("--seconds", type=float, default=SECONDS, help="time limit of one input (default: 10)")
    add(
        "--memory",
        type=int,
        default=MEMORY_MIB,
        metavar="MIB",
        help="memory one input may add (default: 512)",
    )
    add(
        "--found",
        default=".fuzz",
        metavar="DIR",
        help="folder for inputs that find a defect (default: .fuzz/)",
    )
    return commands


def main(arguments: list[str]) -> int:
    """Run the command line; returns the exit code."""
    options = parser().parse_args(arguments)
    if options.reader == "replay":
        return replay([Path(name) for name in options.files])
    return _fuzz(options)


def replay(paths: list[Path]) -> int:
    """Read saved inputs; their names start with their reader's."""
    for path in paths:
        with TemporaryDirectory(prefix="tracekit-fuzz-") as folder:
            reader(path.name.partition("-")[0]).read(unpack(path.read_bytes()), Path(folder))
        print(f"{path.name}: fine")
    return 0


def _fuzz(options: argparse.Namespace) -> int:
    task = Task(
        reader=options.reader,
        seed=options.seed,
        first=options.first,
        stop=options.first + options.inputs,
        memory=options.memory << 20,
        work="",
        found=str(Path(options.found) / options.reader),
    )
    progress = _show if sys.stderr.isatty() else lambda _: None
    outcome = fuzz(task, seconds=options.seconds, progress=progress)
    print(summary(outcome))
    if outcome.found:
        print(f"inputs: {task.found}")
    return 1 if outcome.found else 0


def _show(number: int) -> None:
    print(f"\rinput {number:,}", end="", file=sys.stderr, flush=True)


def summary(outcome: Outcome) -> str:
    """Summarize inputs and defects."""
    rate = outcome.inputs / max(outcome.seconds, 1e-9)
    lines = [
        f"{outcome.inputs:,} inputs, {outcome.accepted:,} accepted, in {outcome.seconds:,.0f} s "
        f"({rate:,.0f} a second)"
    ]
    lines += [f"{count:,} x {kind}" for kind, count in outcome.found.items()]
    return "\n".join(lines if outcome.found else [*lines, "no defect"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
