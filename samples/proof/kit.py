"""Run all recipes, judge the claims, and leave a report and one archive."""

from __future__ import annotations

import math
import os
import shutil
import sys
import time
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tracekit.errors import ExitCode, TracekitError
from tracekit.export.chrome import chrome_trace, compress
from tracekit.recording.store_run import RAW_TRACE
from tracekit.registry import VERSION
from tracekit.runs import revisions
from tracekit.runs.store import Store, timestamp

from . import archive, machine, processes
from .claims import CLAIMS, Verdict, judge_all
from .judges import Outcome, Recorded
from .processes import Ended, State
from .recipes import RECIPES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracekit.runs.run import Run

    from .machine import Machine
    from .recipes import Recipe

SCHEMA = "tracekit.proof/1"
MINUTES = 20.0
RESERVE_S = 60.0
"""Time that is kept for judging and packing."""
REPORT, STORE = "report.json", "store"
RUNS, MACHINE, OUTPUTS, LOGS = "runs", "machine", "recipes", "logs"
"""Folders of the archive."""
SEND = "Attach this archive to a new issue on the Issues page of tracekit's repository (see README.md)"


@dataclass(frozen=True, kw_only=True)
class StandIn:
    """What replaces the GPU in a test; the report of such a run says that it is simulated.

    Attributes:
        recipes: Recipes to run.
        machine: What torch is said to find.
        environment: Environment variables to add for all children.
    """

    recipes: Sequence[Recipe]
    machine: Machine
    environment: Mapping[str, str] = field(default_factory=dict)


class RefusedError(TracekitError):
    """There is no GPU that torch can use."""

    exit_code = ExitCode.NOTHING_MEASURED


def prove(
    out: Path, *, minutes: float = MINUTES, names: Sequence[str] = (), stand_in: StandIn | None = None
) -> int:
    """Record the evidence into a folder; returns the exit code.

    It is 0 if no claim failed, 1 if one did, 3 if a recipe or a claim was left undecided.

    Args:
        out: Folder for everything; new or empty.
        minutes: Time limit of all recipes together.
        names: Recipes to run; all by default.
        stand_in: Only for tests.

    Raises:
        TracekitError: The folder cannot be used, or there is no usable GPU.
    """
    out = out.resolve()
    _refuse_folder(out)
    deadline = time.monotonic() + 60 * minutes
    variables = {**os.environ, **stand_in.environment} if stand_in else None
    work = out / "work"
    (work / MACHINE).mkdir(parents=True)
    found = stand_in.machine if stand_in else machine.probe(work / MACHINE)
    if not found.available:
        shutil.rmtree(work)
        raise RefusedError(
            f"torch cannot use a GPU here: {found.reason or 'no device was found'}",
            hint="the kit records nothing on a CPU; `tracekit doctor` says what is missing",
        )
    _say(f"{', '.join(found.names)}; {minutes:g} minutes at most")
    tools = machine.describe(work / MACHINE, store=out / STORE, variables=variables)
    recipes = [one for one in (stand_in.recipes if stand_in else RECIPES) if not names or one.name in names]
    recorded = {}
    for number, recipe in enumerate(recipes, 1):
        left = deadline - RESERVE_S - time.monotonic()
        ended = _run(recipe, work, store=out / STORE, found=found, left=left, variables=variables)
        recorded[recipe.name] = Recorded(ended=ended, run=_recorded_run(out / STORE, recipe))
        _say(f"{number}/{len(recipes)} {recipe.name}: {ended.state} ({ended.seconds:.0f} s) {ended.reason}")
    verdicts = judge_all(recorded)
    runs = {name: one.run for name, one in recorded.items() if one.run}
    for name, run in runs.items():
        try:
            _copy(run, work / RUNS / name)
        except (OSError, TracekitError) as error:  # the report says more than no report
            _say(f"the run of {name} is not in the archive: {error}")
    _copy_logs(out / STORE, work / LOGS)
    report = _report(found, recipes, recorded, verdicts, tools, simulated=stand_in is not None)
    return _finish(out, work, report, verdicts, recorded)


def _refuse_folder(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise TracekitError(f"{out} is not an empty folder", hint="give a new folder with --out")


def _run(
    recipe: Recipe,
    work: Path,
    *,
    store: Path,
    found: Machine,
    left: float,
    variables: Mapping[str, str] | None,
) -> Ended:
    lacking = next(filter(None, (machine.missing(need, found) for need in recipe.needs)), "")
    if lacking:
        return Ended(state=State.NOT_APPLICABLE, reason=lacking)
    if left <= 0:
        return Ended(state=State.NOT_RUN, reason="the time was over (see --minutes)")
    folder = work / OUTPUTS / recipe.name
    try:
        return processes.run(
            recipe, folder, store=store, last=machine.last_device(found), seconds=left, environment=variables
        )
    except OSError as error:  # such as a full disk: the other recipes may still tell something
        return Ended(state=State.FAILED, reason=f"it could not be started: {error.strerror or error}")


def _recorded_run(store: Path, recipe: Recipe) -> Run | None:
    """Return the newest run with the label of a recipe."""
    labeled = (
        [run for run in Store(store).readable() if run.meta.label == recipe.name] if store.exists() else []
    )
    return labeled[-1] if labeled else None


def _copy(run: Run, folder: Path) -> None:
    """Copy the metadata of a run, and its trace, or a Chrome trace of its tables if there is none."""
    folder.mkdir(parents=True)
    path = Path(str(run.path))
    shutil.copyfile(path / "run.json", folder / "run.json")
    raw = path / RAW_TRACE
    if raw.exists():
        shutil.copyfile(raw, folder / RAW_TRACE)
    elif run.meta.profiled:
        with (folder / "tables.json.gz").open("wb") as file:
            file.writelines(compress(chrome_trace(run)))


def _copy_logs(store: Path, folder: Path) -> None:
    """Copy logs that collectors left in the store, such as those of failed processes."""
    found = [path for ending in (".log", ".txt") for path in store.rglob(f"*{ending}")]
    for number, path in enumerate(sorted(found)):
        folder.mkdir(exist_ok=True)
        shutil.copyfile(path, folder / f"{number}-{path.name}")


def _report(
    found: Machine,
    recipes: Sequence[Recipe],
    recorded: Mapping[str, Recorded],
    verdicts: Sequence[Verdict],
    tools: Mapping[str, str],
    *,
    simulated: bool,
) -> dict[str, Any]:
    git = revisions.state()
    rows = []
    for recipe in recipes:
        one = recorded[recipe.name]
        rows.append(
            {
                "recipe": recipe.name,
                "about": recipe.about,
                "state": one.ended.state,
                "reason": one.ended.reason,
                "exit_code": one.ended.code,
                "seconds": round(one.ended.seconds, 1),
                "facts": dict(one.ended.facts),
                "run": one.run.id if one.run else None,
                "diagnostics": [asdict(each) for each in one.run.meta.diagnostics] if one.run else [],
            }
        )
    states = {claim.name: claim.states for claim in CLAIMS}
    return {
        "schema": SCHEMA,
        "simulated": simulated,
        "created_at": timestamp(datetime.now(UTC)),
        "tracekit": VERSION,
        "commit": git.sha if git else None,
        "dirty": git.dirty if git else None,
        "gpus": list(found.names),
        "versions": {"python": sys.version.split()[0], **found.versions},
        "tools": dict(tools),
        "recipes": rows,
        "claims": [{**asdict(one), "states": states[one.claim]} for one in verdicts],
        "summary": {str(kind): sum(one.outcome is kind for one in verdicts) for kind in Outcome},
    }


def _finish(
    out: Path,
    work: Path,
    report: dict[str, Any],
    verdicts: Sequence[Verdict],
    recorded: Mapping[str, Recorded],
) -> int:
    redact = archive.Redactor(folders={str(out): "out"})
    text = redact(msgspec.json.format(msgspec.json.encode(finite(report)), indent=2).decode() + "\n")
    (work / REPORT).write_text(text)
    (out / REPORT).write_text(text)
    kind = "simulated-" if report["simulated"] else ""
    stamp = report["created_at"].replace("-", "").replace(":", "")
    packed = out / f"tracekit-proof-{kind}{stamp}.tar.gz"
    archive.pack(packed, work, redact)
    for one in verdicts:
        numbers = ", ".join(f"{name} {_short(value)}" for name, value in one.numbers.items())
        said = "; ".join(filter(None, (one.reason, numbers)))
        sys.stdout.write(f"{one.outcome:15}{one.claim} ({', '.join(one.recipes)}): {said}\n")
    counts = ", ".join(f"{count} {kind}" for kind, count in report["summary"].items())
    sys.stdout.write(f"\n{counts}\n{packed}\n{SEND}\n")
    return exit_code(verdicts, [one.ended for one in recorded.values()])


def exit_code(verdicts: Sequence[Verdict], ended: Sequence[Ended]) -> ExitCode:
    """Return 1 if a claim failed, else 3 if a recipe or a claim is undecided, else 0."""
    outcomes, states = {one.outcome for one in verdicts}, {one.state for one in ended}
    if Outcome.FAIL in outcomes:
        return ExitCode.REGRESSION
    undecided = Outcome.UNKNOWN in outcomes or states & {State.FAILED, State.TIMEOUT, State.NOT_RUN}
    return ExitCode.CANNOT_TELL if undecided else ExitCode.OK


def finite(value: Any) -> Any:
    """Replace floats that JSON cannot hold by None, in nested values.

    Example:
        >>> finite({"a": [1.5, float("nan")]})
        {'a': [1.5, None]}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: finite(one) for name, one in value.items()}
    return [finite(one) for one in value] if isinstance(value, (list, tuple)) else value


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _say(message: str) -> None:
    sys.stderr.write(f"{message.rstrip()}\n")
