"""Compare tracekit with similar tools; writes the results as JSON and as a page.

    just bench                         everything: 10 MB, 100 MB and 1 GB, three rounds; over an hour
    just bench ingest nsys             only these parts
    just bench --quick                 10 MB, one round
    just bench --large                 4 GB too
    just bench analyses --only kernels --only ops

Inputs are amplified from a simulated and a recorded trace and cached in .bench/, which also has a virtual
environment for each peer (benchmarks/peers.txt). A contender that fails or exceeds a limit is listed with the
reason; the others continue. Use an idle machine. The inputs up to 1 GB take 4 GB of disk, those of --large
another 12 GB.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from benchmarks.page import page, sections
from benchmarks.parts import PARTS, Plan
from benchmarks.peers import environments
from benchmarks.report import SCHEMA, document, machine, peer_versions, versions
from benchmarks.runner import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.parts import Part

SIZES, LARGE = (10.0, 100.0, 1000.0), 4000.0
ROUNDS = 3
SHARE_OF_MEMORY = 0.8


def parser() -> argparse.ArgumentParser:
    """The command line."""
    commands = argparse.ArgumentParser(
        prog="just bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    _add_inputs(commands.add_argument_group("parts and inputs").add_argument)
    _add_options(commands.add_argument_group("measurement and output").add_argument)
    return commands


def _add_inputs(add: Callable[..., object]) -> None:
    add("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all by default")
    add("--quick", action="store_true", help="10 MB and one round; results go to .bench/ by default")
    add("--large", action="store_true", help="also 4 GB")
    add("--sizes", type=_sizes, metavar="MB,...", help="sizes of the inputs, in MB")
    add(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="select peers and analyses whose name contains this; repeatable",
    )
    add("--source", type=Path, metavar="TRACE", help="Kineto trace with device activity to amplify")
    add("--export", type=Path, metavar="SQLITE", help="Nsight Systems export to amplify")
    add(
        "--as-it-is",
        action="store_true",
        help="measure --source and --export as they are, without amplifying",
    )


def _add_options(add: Callable[..., object]) -> None:
    add("--rounds", type=int, help=f"runs of each contender (default: {ROUNDS})")
    add(
        "--timeout",
        type=float,
        default=900,
        metavar="S",
        help="kill a run after this time (default: %(default)s)",
    )
    add(
        "--memory-gb",
        type=float,
        metavar="GB",
        help="kill a run above this memory (default: 80%% of the free memory)",
    )
    add("--offline", action="store_true", help="install no peers; use those already installed")
    add(
        "--folder",
        type=Path,
        default=Path(".bench"),
        help="folder for inputs and peers (default: %(default)s)",
    )
    add("--json", type=Path, metavar="FILE", help="results (default: docs/benchmarks.json)")
    add("--page", type=Path, metavar="FILE", help="page (default: next to the results, as .md)")


def _sizes(text: str) -> tuple[float, ...]:
    sizes = tuple(sorted(float(word) for word in text.split(",")))
    if not sizes or sizes[0] <= 0:
        raise argparse.ArgumentTypeError(f"{text}: sizes must be above 0")
    return sizes


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and write."""
    options = parser().parse_args(arguments)
    unknown = [name for name in options.parts if name not in PARTS]
    if unknown:
        parser().error(f"unknown part {', '.join(unknown)}; choose from {', '.join(PARTS)}")
    plan, results = make_plan(options), results_path(options)
    for name in options.parts or PARTS:
        found = measure_part(PARTS[name], plan, lambda part: write(results, options.page, part))
        print("\n\n".join(sections(found)), end="\n\n", flush=True)


def measure_part(part: Part, plan: Plan, save: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Measure a part; the results so far are saved after every input, since a part may take hours."""
    facts: dict[str, Any] = {"name": part.name, "machine": machine(), "options": _options(plan)}
    facts |= {"versions": versions(), "peers": peer_versions(plan.peers)}
    found, cases = {**facts, **document(part, [])}, []
    for case in part.measure(plan):
        cases.append(case)
        found |= document(part, cases)
        save(found)
    return found


def make_plan(options: argparse.Namespace) -> Plan:
    """The plan for the command line's options."""
    sizes = options.sizes or (SIZES[:1] if options.quick else SIZES)
    memory_gb = options.memory_gb or SHARE_OF_MEMORY * psutil.virtual_memory().available / 1e9
    return Plan(
        sizes=(*sizes, LARGE) if options.large and LARGE not in sizes else sizes,
        rounds=options.rounds or (1 if options.quick else ROUNDS),
        folder=options.folder.absolute(),
        limits=Limits(wall_s=options.timeout, memory_mb=memory_gb * 1e3),
        peers=environments(options.folder.absolute() / "peers", install=not options.offline, log=_log),
        source=options.source,
        export=options.export,
        as_it_is=options.as_it_is,
        only=tuple(options.only),
        log=_log,
    )


def results_path(options: argparse.Namespace) -> Path:
    """Path of the results; quick ones never overwrite the documented ones."""
    if options.json:
        return Path(options.json)
    return options.folder / "quick.json" if options.quick else Path("docs/benchmarks.json")


def write(results: Path, text: Path | None, part: dict[str, Any]) -> None:
    """Update a part of the results and rewrite the page."""
    before = json.loads(results.read_text())["parts"] if results.is_file() else {}
    parts = {**before, part["name"]: part}
    found = {"schema": SCHEMA, "parts": {name: parts[name] for name in PARTS if name in parts}}
    results.parent.mkdir(parents=True, exist_ok=True)
    results.write_text(json.dumps(found, indent=1) + "\n")
    target = text or results.with_suffix(".md")
    target.write_text(page(found, source=results.name))
    _log(f"  wrote {results} and {target}")


def _options(plan: Plan) -> dict[str, Any]:
    limits = {"timeout_s": plan.limits.wall_s, "memory_gb": round(plan.limits.memory_mb / 1e3, 1)}
    return {"sizes_mb": list(plan.sizes), "rounds": plan.rounds, **limits, "only": list(plan.only)}


def _log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
