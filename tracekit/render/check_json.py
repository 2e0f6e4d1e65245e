"""Gate result as JSON, `tracekit.check/1`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tracekit.render import check_words as words
from tracekit.render.diff_tables import causes
from tracekit.render.plain import envelope

if TYPE_CHECKING:
    from tracekit.checking.model import Configuration, Gate


def as_json(gate: Gate) -> str:
    """One object: verdict, exit code, and every configuration with its metrics and differences."""
    content = envelope(
        "check",
        verdict=str(gate.verdict),
        exit_code=int(gate.exit_code),
        against=gate.against,
        merge_base=gate.merge_base,
        threshold=gate.threshold,
        configurations=[_configuration(one) for one in gate.configurations],
        missing=list(gate.missing),
        unmeasured=list(gate.unmeasured),
        notes=list(gate.notes),
        explain=[*words.differences(gate), *words.searches(gate)],
        reproduce=list(gate.command),
    )
    return content + "\n"


def _configuration(one: Configuration) -> dict[str, Any]:
    return {
        "name": one.name,
        "workload": one.workload,
        "mode": one.mode,
        "device": one.device,
        "outcome": str(one.outcome),
        "base": asdict(one.base) if one.base else None,
        "head": asdict(one.head),
        "differences": [{**asdict(each), "status": str(each.status)} for each in one.differences],
        "metrics": [each.entry() for each in one.comparisons],
        "one_sided": list(one.one_sided),
        "notes": list(one.notes),
        "causes": _causes(one),
    }


def _causes(one: Configuration) -> list[dict[str, Any]] | None:
    """Return all lines of the work ledger, per step; null if the profiles were not compared."""
    return causes(one.explained).rows if one.explained else None
