"""Precision of the advice: how many HIGH and WARN findings on recorded traces an engineer signs, by rule.

`judgements.json` has a verdict for each of them, and for the sentence on what bounds each run with its text,
given from the raw events of the trace by someone who read those, not what the analyses make of them.
`python -m tests.golden.precision` prints a line per rule, one for all, and one for the sentences.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("judgements.json")
VERDICTS = ("right", "partly", "true_but_useless", "false")


def judged() -> dict[str, Any]:
    """Findings and sentences with a verdict, by recorded run."""
    known: dict[str, Any] = json.loads(FILE.read_text())
    return known


def by_rule() -> dict[str, Counter[str]]:
    """Number of findings by rule and verdict."""
    counts: dict[str, Counter[str]] = {}
    for run in judged().values():
        for finding in run["findings"]:
            counts.setdefault(finding["code"], Counter())[finding["verdict"]] += 1
    return counts


def sentences() -> Counter[str]:
    """Number of sentences on what bounds a run by verdict."""
    return Counter(run["sentence"]["verdict"] for run in judged().values() if "sentence" in run)


def main() -> None:
    """Print the counts of each rule, those of all, and those of the sentences."""
    counts = by_rule()
    print(f"{'rule':45} {'right':>6} {'partly':>7} {'useless':>8} {'false':>6} {'precision':>10}")
    total = sum(counts.values(), Counter[str]())
    for rule, found in [*sorted(counts.items()), ("all", total), ("sentences", sentences())]:
        right, partly, useless, false = (found[verdict] for verdict in VERDICTS)
        share = right / found.total()
        print(f"{rule:45} {right:6} {partly:7} {useless:8} {false:6} {share:10.0%}")


if __name__ == "__main__":
    main()
