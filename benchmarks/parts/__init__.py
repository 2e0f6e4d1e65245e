"""What can be measured, by name; each part makes its inputs and says who is measured on them."""

from __future__ import annotations

from benchmarks.parts import analyses, dashboard, ingest, nsys

PARTS = {part.name: part for part in (ingest.PART, nsys.PART, analyses.PART, dashboard.PART)}
