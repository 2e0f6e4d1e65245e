"""Hand-made records of sweeps."""

from __future__ import annotations

from typing import Any

from tracekit.experiments.sweep_model import Cell, Outcome, Plan, Record, Settings, Values


def cell(*, part: str = "", **settings: Any) -> Cell:
    usual: dict[str, Any] = {"workload": "w", "resolution": 8, "batch_size": 1}
    return Cell(settings=Settings(**usual | settings), part=part)


def plan(*cells: Cell, **fields: Any) -> Plan:
    return Plan(**{"name": "w", "cells": cells, **fields})


def ok(of: Cell, *step_ns: int, repeat: int = 0, **values: Any) -> Record:
    known: dict[str, Any] = {"run_id": f"{of.key}-{repeat}", "device": "cpu", "threads": 1}
    found = Values(**known | {"step_ns": step_ns} | values)
    return Record(key=of.key, repeat=repeat, outcome=Outcome.OK, values=found, seconds=2.0)


def bad(of: Cell, outcome: Outcome, reason: str = "why", *, repeat: int = 0) -> Record:
    return Record(key=of.key, repeat=repeat, outcome=outcome, reason=reason, seconds=1.0)


def done(*records: Record) -> dict[tuple[str, int], Record]:
    return {(one.key, one.repeat): one for one in records}
