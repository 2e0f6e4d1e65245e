"""Record the sample traces with tracekit, each with its provenance, or prove what tracekit claims on a GPU.

    python -m samples.record            # every sample, on the GPU where there is one
    python -m samples.record mnist_cnn-train --device cpu
    python samples/record.py --out DIR  # the proof kit: see docs/gpu.md

A sample is `samples/recorded/NAME-DEVICE/trace.json.gz`, at most 2 MB, with `provenance.json`: the command,
the commit, the machine and the versions.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import re
import sys
import sysconfig
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tracekit.cli.progress import print_error
from tracekit.errors import ExitCode, TracekitError
from tracekit.ingest import artifacts
from tracekit.recording.collect import collect
from tracekit.recording.collector import Request
from tracekit.recording.store_run import RAW_TRACE
from tracekit.runs.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tracekit.runs.run import Run

if not __package__:  # run as a script: its own folder is no package
    sys.path[0] = str(Path(__file__).resolve().parents[1])

RECORDED = Path(__file__).parent / "recorded"
MAX_BYTES = 2_000_000

RECIPES = {
    "mnist_cnn-train": Request(workload="mnist_cnn", mode="train", steps=3, threads=1),
    "mnist_cnn-train-zero": Request(workload="mnist_cnn", mode="train", steps=3, threads=1, zero_grad="zero"),
    "mnist_cnn-train-libtorch": Request(
        workload="mnist_cnn", mode="train", steps=3, threads=1, level="libtorch"
    ),
    "mnist_cnn-infer": Request(workload="mnist_cnn", mode="infer", steps=3, threads=1),
    "resnet50-train": Request(
        workload="resnet50", mode="train", batch_size=2, resolution=64, steps=2, threads=1
    ),
    "gpt-train": Request(workload="gpt", size="test", steps=3, threads=1),
    "gpt-train-stacks": Request(workload="gpt", size="test", steps=1, threads=1, stacks=True),
    "dlrm-train": Request(workload="dlrm", size="test", steps=2, threads=1),
    "sac-train": Request(workload="sac", size="test", steps=3, threads=1),
    "speech_transformer-infer": Request(
        workload="speech_transformer", mode="infer", size="test", steps=2, threads=1
    ),
    "gpt-train-compile": Request(
        workload="gpt", size="test", steps=2, threads=1, level="compile", compile_artifacts=True
    ),
    "lennard_jones-train": Request(workload="lennard_jones", size="test", steps=3, threads=1),
}
"""Small recordings: at least one per domain, those that the studies need, one of C++, and one compiled."""
TORCH_TRACE = "torch_trace.log.gz"
_READ = (
    "inductor_output_code",
    "dynamo_output_graph",
    "inductor_post_grad_graph",
    "inductor_provenance_tracking",
    "fx_graph_cache_",
    "dynamo_start",
    "str",
)
"""Records of a TORCH_TRACE log that an import reads."""
_ROOT = Path(__file__).parents[1]
_PLACES = re.compile(rf"{re.escape(str(_ROOT))}/|/[^\s\"']*/(?=torch_trace|inductor/|site-packages/)")


def record(name: str, *, device: str = "auto") -> Path:
    """Record one recipe.

    Returns:
        Folder of the sample.

    Raises:
        ValueError: The trace is larger than `MAX_BYTES`.
    """
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["TORCH_TRACE"] = scratch  # only a recipe with `compile_artifacts` writes there
        run = collect(Store(Path(scratch)), replace(RECIPES[name], device=device, keep_trace=True))
        log = _torch_trace(scratch)
        trace = without_folders(gzip.decompress((run.path / RAW_TRACE).read_bytes()))
        packed = gzip.compress(trace, 9, mtime=0)
        if len(packed) > MAX_BYTES:
            raise ValueError(f"{name}: {len(packed)} bytes are more than {MAX_BYTES}; take fewer steps")
        folder = RECORDED / f"{name}-{(run.meta.workload or {})['device']}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "trace.json.gz").write_bytes(packed)
        if log:
            (folder / TORCH_TRACE).write_bytes(gzip.compress(log.encode(), 9, mtime=0))
        text = msgspec.json.format(msgspec.json.encode(provenance(run, packed)), indent=2)
        (folder / "provenance.json").write_bytes(text + b"\n")
    return folder


def without_folders(trace: bytes) -> bytes:
    """Make the paths in names of Python functions and of compiled kernels relative."""
    folders = {Path(__file__).resolve().parents[1], *(Path(path) for path in sysconfig.get_paths().values())}
    roots = {Path(sys.prefix), Path(sys.base_prefix), *(Path(path) for path in sys.path if path)}
    for folder in sorted({*folders, *roots}, key=lambda path: -len(str(path))):
        trace = trace.replace(f"{folder}/".encode(), b"") if len(folder.parts) > 1 else trace
    return _PLACES.sub("", trace.decode()).encode()


def _torch_trace(folder: str) -> str:
    """Return the records of TORCH_TRACE logs that an import reads, without absolute paths."""
    kept = []
    for path in sorted(Path(folder).glob("*.log")):
        for record, payload in artifacts.records(path):
            name = str((record.get("artifact") or {}).get("name", ""))
            if any(one.startswith(_READ) for one in (name, *record)):
                cached = name.startswith("fx_graph_cache_")
                text = json.dumps({"key": json.loads(payload).get("key")}) if cached else payload
                head = json.dumps(record)
                lines = "".join(f"\t{line}\n" for line in text.splitlines())
                kept.append(f"V0101 00:00:00.000000 1 torch/_logging.py:1] {head}\n{lines}")
    return _PLACES.sub("", "".join(kept))


def provenance(run: Run, packed: bytes) -> dict[str, Any]:
    """Return what is needed to record a sample again, without names of persons, hosts or single devices."""
    meta = run.meta
    gpus = [{name: gpu[name] for name in gpu if name != "uuid"} for gpu in meta.environment["gpus"]]
    return {
        "recorded_by": "samples/record.py",
        "recorded_at": meta.created_at,
        "command": meta.command,
        "commit": meta.git.sha if meta.git else None,
        "dirty": meta.git.dirty if meta.git else None,
        "collector": asdict(meta.collector),
        "workload": meta.workload,
        "environment": {**meta.environment, "gpus": gpus},
        "step_ns_without_profiler": meta.timings.step_ns if meta.timings else None,
        "sha256": hashlib.sha256(packed).hexdigest(),
        "bytes": len(packed),
    }


def main() -> int:
    """Record the samples named, or with `--out` run the proof kit; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="recipes to run; all by default")
    parser.add_argument(
        "--device", choices=("auto", "cpu", "cuda"), help="device of the samples; default: auto"
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="run the proof kit, and leave its evidence here"
    )
    parser.add_argument("--minutes", type=float, help="time limit of the proof kit; default: 20")
    options = parser.parse_args()
    if options.out is not None:
        if options.device:
            parser.error("--device is of the samples; the proof kit uses the GPU")
        return _prove(parser, options)
    if options.minutes is not None:
        parser.error("--minutes is of the proof kit; give --out as well")
    _refuse_unknown(parser, options.names, RECIPES)
    for name in options.names or RECIPES:
        folder = record(name, device=options.device or "auto")
        sys.stdout.write(f"{folder.relative_to(Path.cwd())}\n")
    return 0


def _prove(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    from samples.proof import kit, recipes

    _refuse_unknown(parser, options.names, [one.name for one in recipes.RECIPES])
    minutes = kit.MINUTES if options.minutes is None else options.minutes
    try:
        return kit.prove(options.out, minutes=minutes, names=options.names)
    except TracekitError as error:
        print_error(error)
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write(f"interrupted; what was recorded until then is in {options.out}\n")
        return ExitCode.INTERRUPTED


def _refuse_unknown(parser: argparse.ArgumentParser, names: Sequence[str], known: Iterable[str]) -> None:
    unknown = sorted(set(names) - set(known))
    if unknown:
        parser.error(f"no recipe is named {', '.join(unknown)}; known: {', '.join(known)}")


if __name__ == "__main__":
    sys.exit(main())
