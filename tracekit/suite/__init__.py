"""The suite: all workloads measured by the methods of published studies, next to the published numbers.

A suite is a sweep of several parts (`plan`), so it goes on where it was stopped. `report` reads the sweep's
rows into tables, each of one module of `tables`; `figures` draws them.
"""

from __future__ import annotations

from tracekit.suite.plan import SIZES, plan
from tracekit.suite.report import Report, report

__all__ = ["SIZES", "Report", "plan", "report"]
