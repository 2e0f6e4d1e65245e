"""Measure tracekit beside its peers, and write what came out as JSON and as a page.

    just bench                         everything: 10 MB, 100 MB and 1 GB, three rounds; over an hour
    just bench ingest nsys             only these parts
    just bench --quick                 10 MB, one round
    just bench --large                 4 GB too
    just bench analyses --only kernels --only ops

Inputs are amplified from a simulated and a recorded trace and kept in .bench/, where the peers get
environments of their own (benchmarks/peers.txt). A contender that fails, takes too long or too much memory is
named with the reason, and the others go on. Use a quiet machine: contenders take turns, but nothing makes up
for a neighbour. The inputs up to 1 GB take 4 GB of the disk, those of --large 12 GB more.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from benchmarks.parts import PARTS
from benchmarks.parts.plan import Plan
from benchmarks.peers import environments
from benchmarks.report.document import SCHEMA, document
from benchmarks.report.machine import machine, peers, versions
from benchmarks.report.page import page, sections
from benchmarks.runner import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.parts.part import Part

SIZES, LARGE = (10.0, 100.0, 1000.0), 4000.0
ROUNDS = 3
SHARE_OF_MEMORY = 0.8


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(
        prog="just bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    _what(found.add_argument_group("what is measured").add_argument)
    _how(found.add_argument_group("how, and where it goes").add_argument)
    return found


def _what(add: Callable[..., object]) -> None:
    add("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all by default")
    add("--quick", action="store_true", help="10 MB and one round, written to .bench/ unless told otherwise")
    add("--large", action="store_true", help="4 GB too")
    add("--sizes", type=_sizes, metavar="MB,...", help="these sizes of inputs, in MB")
    add(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="peers and analyses with this in their name",
    )
    add("--source", type=Path, metavar="TRACE", help="amplify this Kineto trace, of a device")
    add("--export", type=Path, metavar="SQLITE", help="amplify this export of Nsight Systems")
    add("--as-it-is", action="store_true", help="measure --source and --export themselves, at no other size")


def _how(add: Callable[..., object]) -> None:
    add("--rounds", type=int, help=f"how often each contender runs; {ROUNDS} by default")
    add(
        "--timeout",
        type=float,
        default=900,
        metavar="S",
        help="end a run after so long (default: %(default)s)",
    )
    add(
        "--memory-gb",
        type=float,
        metavar="GB",
        help="end a run that has more; by default 80%% of what is free",
    )
    add("--offline", action="store_true", help="install no peers; use those that are there")
    add("--folder", type=Path, default=Path(".bench"), help="for inputs and peers (default: %(default)s)")
    add("--json", type=Path, metavar="FILE", help="results; by default docs/benchmarks.json")
    add("--page", type=Path, metavar="FILE", help="the page; by default beside the results, as .md")


def _sizes(text: str) -> tuple[float, ...]:
    sizes = tuple(sorted(float(word) for word in text.split(",")))
    if not sizes or sizes[0] <= 0:
        raise argparse.ArgumentTypeError(f"{text}: sizes are above 0")
    return sizes


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and write."""
    options = parser().parse_args(arguments)
    unknown = [name for name in options.parts if name not in PARTS]
    if unknown:
        parser().error(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    plan, results = planned(options), results_of(options)
    for name in options.parts or PARTS:
        found = measured(PARTS[name], plan, lambda part: write(results, options.page, part))
        print("\n\n".join(sections(found)), end="\n\n", flush=True)


def measured(part: Part, plan: Plan, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Measure a part; what came out so far is kept after every input, for a part may take hours."""
    facts: dict[str, Any] = {"name": part.name, "machine": machine(), "options": _told(plan)}
    facts |= {"versions": versions(), "peers": peers(plan.peers)}
    found, cases = {**facts, **document(part, [])}, []
    for case in part.measure(plan):
        cases.append(case)
        found |= document(part, cases)
        keep(found)
    return found


def planned(options: argparse.Namespace) -> Plan:
    """What the command line asks for."""
    sizes = options.sizes or (SIZES[:1] if options.quick else SIZES)
    memory_gb = options.memory_gb or SHARE_OF_MEMORY * psutil.virtual_memory().available / 1e9
    return Plan(
        sizes=(*sizes, LARGE) if options.large and LARGE not in sizes else sizes,
        rounds=options.rounds or (1 if options.quick else ROUNDS),
        folder=options.folder.absolute(),
        limits=Limits(wall_s=options.timeout, memory_mb=memory_gb * 1e3),
        peers=environments(options.folder.absolute() / "peers", install=not options.offline, tell=_say),
        source=options.source,
        export=options.export,
        as_it_is=options.as_it_is,
        only=tuple(options.only),
        tell=_say,
    )


def results_of(options: argparse.Namespace) -> Path:
    """Where the results go: those of a quick look never in place of the documented ones."""
    if options.json:
        return Path(options.json)
    return options.folder / "quick.json" if options.quick else Path("docs/benchmarks.json")


def write(results: Path, text: Path | None, part: dict[str, Any]) -> None:
    """Put a part among the results, and write the page anew from all of them."""
    before = json.loads(results.read_text())["parts"] if results.is_file() else {}
    parts = {**before, part["name"]: part}
    found = {"schema": SCHEMA, "parts": {known: parts[known] for known in PARTS if known in parts}}
    results.parent.mkdir(parents=True, exist_ok=True)
    results.write_text(json.dumps(found, indent=1) + "\n")
    place = text or results.with_suffix(".md")
    place.write_text(page(found, source=results.name))
    _say(f"  wrote {results} and {place}")


def _told(plan: Plan) -> dict[str, Any]:
    limits = {"timeout_s": plan.limits.wall_s, "memory_gb": round(plan.limits.memory_mb / 1e3, 1)}
    return {"sizes_mb": list(plan.sizes), "rounds": plan.rounds, **limits, "only": list(plan.only)}


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
