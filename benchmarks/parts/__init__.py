"""What can be measured, by name; each part makes its inputs and says who is measured on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.parts import analyses, dashboard, ingest, nsys

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.parts.part import Part
    from benchmarks.parts.plan import Plan

PARTS: dict[str, Callable[[Plan], Part]] = {
    "ingest": ingest.measured,
    "nsys": nsys.measured,
    "analyses": analyses.measured,
    "dashboard": dashboard.measured,
}
