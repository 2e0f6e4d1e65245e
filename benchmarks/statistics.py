"""Error rates of comparisons on synthetic runs: false alarms, coverage, power, searches.

    python -m benchmarks.statistics [--count 4000] [--searches 1000]

Prints percentages of simulated experiments from fixed seeds, judged by `tracekit.stats`. Marks each missed
bound and exits with 1.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from benchmarks import searches, simulation
from benchmarks.noise_models import HARD, MODELS
from tracekit.stats.noise import detectable_effect
from tracekit.stats.tests import SCHEDULE, plan

if TYPE_CHECKING:
    from collections.abc import Iterator

FALSE_ALARMS = 0.01
COVERAGE = (0.93, 0.97)
FAMILY = 0.055
MAX_ALARMS, MIN_COVERED = 0.05, 0.93
SIDES: tuple[tuple[int, ...], ...] = ((2,), (3,), (4,), (5,), (6,), (8,), (10,), SCHEDULE)
SESSIONS = (8, 20)
OCCASIONS = (
    ("independent", "independent"),
    ("independent", "two states, 10%"),
    ("independent", "outliers"),
    ("independent", "alternating steps"),
    ("independent", "every 10th step slow"),
    ("two states, 10%", "independent"),
    ("sticky states, 10%", "independent"),
    ("AR(0.8)", "independent"),
    ("drift of 10%", "independent"),
)
"""Models of the levels of sessions, and of the runs within them."""
HISTORIES = (16, 20, 40)
LASTING = ("sticky states, 10%", "drift of 10%", "AR(0.8)")
HARD_HISTORIES = ("independent", "two states, 10%", "outliers", *LASTING)
SCHEDULES: tuple[tuple[int, ...], ...] = ((5,), (6,), (10,), (20,), SCHEDULE)
INCREASES = (0.07, 0.10, 14.64)


@dataclass(frozen=True)
class Line:
    """One line of the report, and whether it keeps its bound."""

    text: str
    met: bool = True


def main() -> None:
    """Simulate and print; exit with 1 where a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--count", type=int, default=4000, help="experiments per line")
    parser.add_argument(
        "--trials", type=int, default=2000, help="experiments per cell of the table of models"
    )
    parser.add_argument("--searches", type=int, default=1000, help="simulated bisections per line")
    options = parser.parse_args()
    missed = 0
    missed += report(robustness(options.trials))
    missed += report(histories(max(1, options.trials // 40)))
    for part in (null, designs, power, detectable, families):
        missed += report(part(options.count))
    missed += report(bisections(options.searches))
    sys.exit(int(missed > 0))


def report(lines: Iterator[Line]) -> int:
    """Print lines; returns how many miss their bound."""
    missed = 0
    for line in lines:
        print(line.text + ("" if line.met else "   bound missed"), flush=True)
        missed += not line.met
    print()
    return missed


def robustness(count: int) -> Iterator[Line]:
    """Verdicts without a change and with +10% by noise model and runs per side, threshold 7%.

    Written in Markdown, for docs/comparing.md.
    """
    yield Line(f"{count} experiments a cell, run sd 3% (alternating) and 1% (apart)\n")
    sides = ", ".join("-".join(map(str, schedule)) for schedule in SIDES)
    yield Line(f"runs per side: {sides}; apart: from 3 on, without looks\n")
    yield Line("| noise, % of experiments | false alarms | regression at +10% | cannot tell | covered |")
    yield Line("| --- | --- | --- | --- | --- |")
    for seed, model in enumerate(HARD):
        run = partial(simulation.alternated, model, count=count, sigma=0.03, seed=seed)
        yield _row(f"alternating: {model}", [run(schedule) for schedule in SIDES], count)
    for seed, (levels, runs) in enumerate(OCCASIONS):
        for sessions in SESSIONS:
            design = partial(simulation.apart, sessions=sessions, count=count, sigma=0.01, seed=seed)
            cells = [design(levels, runs, schedule[-1]) for schedule in SIDES[1:-1]]
            yield _row(f"apart, {sessions} sessions: {levels}; runs: {runs}", cells, count)


def _row(name: str, cells: list[simulation.Cell], count: int) -> Line:
    columns = [
        [getattr(cell, share) for cell in cells] for share in ("alarms", "power", "unknown", "covered")
    ]
    shown = " | ".join("/".join(f"{100 * share:.0f}" for share in shares) for shares in columns)
    # Where the threshold decides nothing, false alarms are 5% by design, and as often more as less.
    error = 2 * (MAX_ALARMS * (1 - MAX_ALARMS) / count) ** 0.5
    met = all(cell.alarms <= MAX_ALARMS + error and cell.covered >= MIN_COVERED - error for cell in cells)
    return Line(f"| {name} | {shown} |", met)


def histories(count: int) -> Iterator[Line]:
    """Steps of at least the threshold in histories of sessions without a change, and with +10% half way."""
    yield Line(f"{count} histories a cell of {'/'.join(map(str, HISTORIES))} sessions, sd 3%\n")
    yield Line("| levels, % of histories | a false step | step of +10% found |\n| --- | --- | --- |")
    for seed, model in enumerate(HARD_HISTORIES):
        cells = [simulation.history(model, sessions, count=count, seed=seed) for sessions in HISTORIES]
        false, found = (
            "/".join(f"{100 * share:.0f}" for share in shares) for shares in zip(*cells, strict=True)
        )
        # What lasts for several sessions is a step: of the machine or the code, which nothing here tells.
        met = model in LASTING or all(share <= MAX_ALARMS for share, _ in cells)
        yield Line(f"| {model} | {false} | {found} |", met)


def null(count: int) -> Iterator[Line]:
    """Comparisons of equal sides, paired by block, threshold 7%, sigma of a run 2%."""
    yield Line(f"No change, ABBA blocks, sigma 2%, {count} experiments a line")
    yield Line(f"{'':12}{'k':>8}{'gate fails':>12}{'covered':>9}{'p < 0.05':>10}{'passes':>8}{'runs':>7}")
    for seed, model in enumerate(MODELS):
        for schedule in SCHEDULES:
            yield _null(model, schedule, count, seed)


def _null(model: str, schedule: tuple[int, ...], count: int, seed: int) -> Line:
    got = simulation.simulated(model, schedule, count=count, sigma=0.02, seed=seed)
    most = COVERAGE[1] if len(schedule) == 1 else 1.0
    met = got.regression <= FALSE_ALARMS and COVERAGE[0] <= got.covered <= most
    k = "-".join(map(str, schedule))
    text = f"{model:12}{k:>8}{_pct(got.regression):>12}{_pct(got.covered):>9}{_pct(got.claimed):>10}"
    return Line(f"{text}{_pct(got.passed):>8}{got.runs:7.1f}", met)


def designs(count: int) -> Iterator[Line]:
    """What the order of runs and the unit of the test do to a 5% test."""
    yield Line("False alarms of a 5% test, no change")
    for name, share in simulation.designs(count=count, seed=11).items():
        yield Line(f"{'3% drift, ' + name:44}{_pct(share):>8}")
    for seed, model in enumerate(MODELS):
        steps, medians = simulation.units(model, count=count, seed=seed)
        yield Line(f"{model + ': pooled steps':44}{_pct(steps):>8}   run medians{_pct(medians):>8}")


def power(count: int) -> Iterator[Line]:
    """What the gate says of planted increases; at the threshold itself half of all estimates lie below it."""
    yield Line("Planted increase, independent runs: regression / not passed; runs a side at 5-10-20")
    yield Line(f"{'':18}{'k = 5':>16}{'k = 10':>16}{'k = 20':>16}{'5-10-20':>16}{'runs':>7}")
    for sigma in (0.01, 0.02, 0.03):
        for increase in INCREASES:
            yield _power(sigma, increase, count)


def _power(sigma: float, increase: float, count: int) -> Line:
    run = partial(simulation.simulated, "iid", count=count, sigma=sigma, planted=float(np.log1p(increase)))
    got = [run(schedule, seed=int(1000 * sigma)) for schedule in ((5,), (10,), (20,), SCHEDULE)]
    cells = "".join(f"{_pct(one.regression) + ' /' + _pct(1 - one.passed):>16}" for one in got)
    planted = f"{1 + increase:.2f}×" if increase >= 1 else f"+{100 * increase:.0f}%"
    found = 1 - got[-1].passed
    return Line(f"sigma {100 * sigma:.0f}%{planted:>10}{cells}{got[-1].runs:7.1f}", found >= 0.95)


def detectable(count: int) -> Iterator[Line]:
    """The smallest detectable effect, and how often the test finds it."""
    yield Line("Smallest detectable effect, per cent (and how often it is found), sigma 1 / 2 / 3%")
    for paired in (False, True):
        for k in (5, 10, 20):
            effects = [detectable_effect(sigma, k, paired=paired) for sigma in (0.01, 0.02, 0.03)]
            share = simulation.found(effects[1], k=k, paired=paired, count=count, sigma=0.02, seed=k)
            table = " / ".join(f"{100 * effect:.1f}" for effect in effects)
            name = "paired" if paired else "two groups"
            yield Line(f"{name:12}k = {k:<4}{table}   ({_pct(share).strip()})", abs(share - 0.8) < 0.05)


def families(count: int) -> Iterator[Line]:
    """Several metrics in one gate, many kernels, sides of unequal size, and single runs with known noise."""
    wrong = simulation.families(count=count, metrics=8, looks=plan(), seed=21)
    yield Line(f"{'8 metrics, 3 looks: any false change (Holm)':52}{_pct(wrong):>8}", wrong <= FAMILY)
    false, found = simulation.discoveries(kernels=count, changed=count // 10, k=5, seed=22)
    yield Line(f"{'kernels, 10% of them +10%: false among shown (BH)':52}{_pct(false):>8}", false <= FAMILY)
    yield Line(f"{'... and shown of the changed':52}{_pct(found):>8}")
    for k in ((1, 10), (2, 5), (2, 20), (3, 10)):
        covered, fails = simulation.unequal(count=count, k=k, seed=23)
        met = covered >= COVERAGE[0] and fails <= FALSE_ALARMS
        yield Line(f"{f'two groups of {k[0]} and {k[1]} runs: covered':52}{_pct(covered):>8}", met)
    for history in (5, 20):
        covered, fails = simulation.single_runs(count=count, history=history, seed=history)
        met = COVERAGE[0] <= covered <= COVERAGE[1] and fails <= FALSE_ALARMS
        yield Line(f"{f'one run a side, noise from {history} runs: covered':52}{_pct(covered):>8}", met)


def bisections(count: int) -> Iterator[Line]:
    """Searches for culprits among 64 commits."""
    yield Line(
        f"Exactly the culprits found among {searches.LAST} commits, and measurements, {count} searches"
    )
    for name, increases, sigma, least in (
        ("+10%, sigma 2%", (0.1,), 0.02, 0.99),
        ("+10%, sigma 3%", (0.1,), 0.03, 0.95),
        ("+5% and +5%, sigma 1%", (0.05, 0.05), 0.01, 0.95),
    ):
        run = partial(searches.found, increases=increases, count=count, sigma=sigma, seed=31)
        once, measured_once = run(searches.recursion)
        share, measured = run(searches.anchored)
        text = f"{name:26}recursion, single measurements{_pct(once):>8} ({measured_once:.0f})"
        yield Line(f"{text}   anchored{_pct(share):>8} ({measured:.0f})", share >= least)


def _pct(share: float) -> str:
    return f"{100 * share:6.2f}"


if __name__ == "__main__":
    main()
