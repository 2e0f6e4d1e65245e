"""Precision of the advice: how many HIGH and WARN findings on recorded traces an engineer signs, by rule.

`judgements.json` has a verdict for each of them, given from the raw events of the trace by someone who read
those, not what the analyses make of them. `python -m tests.golden.precision` prints a line per rule.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("judgements.json")
VERDICTS = ("right", "true_but_useless", "false")


def judged() -> dict[str, Any]:
    """Findings with a verdict, by recorded run."""
    known: dict[str, Any] = json.loads(FILE.read_text())
    return known


def by_rule() -> dict[str, Counter[str]]:
    """Number of findings by rule and verdict."""
    counts: dict[str, Counter[str]] = {}
    for run in judged().values():
        for finding in run["findings"]:
            counts.setdefault(finding["code"], Counter())[finding["verdict"]] += 1
    return counts


def main() -> None:
    """Print the counts of each rule, and those of all."""
    counts = by_rule()
    print(f"{'rule':45} {'right':>6} {'useless':>8} {'false':>6} {'precision':>10}")
    for rule, found in [*sorted(counts.items()), ("all", sum(counts.values(), Counter()))]:
        right, useless, false = (found[verdict] for verdict in VERDICTS)
        print(f"{rule:45} {right:6} {useless:8} {false:6} {right / found.total():10.0%}")


if __name__ == "__main__":
    main()
