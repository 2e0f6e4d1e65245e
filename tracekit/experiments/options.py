"""Options of `tracekit ab`, `bisect` and `check`, each declared once, as in `tracekit.workloads.options`.

Help pages need them, so this imports nothing heavy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from tracekit.errors import UnusableInputError
from tracekit.stats.comparison import THRESHOLD
from tracekit.workloads.options import Option

if TYPE_CHECKING:
    from tracekit.stats.tests import Look

METRICS = ("step_time", "wall", "host_peak", "device_peak", "value")
"""Metrics of a measured program."""
TRIED_THRESHOLD = 0.03
"""Relative change of the step time from which a tried change helps."""
CHECKED = ("step_time", "device_peak", "host_peak")
"""Metrics that stored runs may have."""
UNITS = {
    "ns": ("ns", 1.0),
    "us": ("ns", 1e3),
    "ms": ("ns", 1e6),
    "s": ("ns", 1e9),
    "bytes": ("bytes", 1.0),
    "KiB": ("bytes", 2.0**10),
    "MiB": ("bytes", 2.0**20),
    "GiB": ("bytes", 2.0**30),
    "count": ("count", 1.0),
}
"""Units of printed values: the unit they are converted to, and the factor."""


@dataclass(frozen=True, kw_only=True)
class Design:
    """The design of `tracekit ab`, fixed before the first measurement; the runs double between tests."""

    k: Annotated[
        int, Option("Runs per side before the first test.", spelling="--repeat", aliases=("-k",))
    ] = 5
    max_k: Annotated[int, Option("Maximum runs per side.", spelling="--max-repeat", aliases=("--max-k",))] = (
        20
    )
    threshold: Annotated[float, Option("Smallest slowdown or growth that counts as a regression.")] = (
        THRESHOLD
    )
    metrics: Annotated[
        tuple[str, ...],
        Option(
            "Metrics to compare, comma-separated. Default: time and memory, where measured.",
            spelling="--metric",
            choices=METRICS,
        ),
    ] = ()
    warmup: Annotated[int, Option("Warm-up runs per side, not counted.", least=0)] = 1

    @property
    def looks(self) -> tuple[Look, ...]:
        """Interim tests, with the significance level of each.

        Raises:
            UnusableInputError: `k` is below 2 or above `max_k`.

        Example:
            >>> [look.k for look in Design().looks], [look.k for look in Design(k=6, max_k=6).looks]
            ([5, 10, 20], [6])
        """
        from tracekit.stats.tests import plan

        if not 2 <= self.k <= self.max_k:
            raise UnusableInputError(
                f"--repeat {self.k} and --max-repeat {self.max_k} do not fit",
                hint="use a --repeat of at least 2 and at most --max-repeat",
            )
        schedule = [self.k]
        while 2 * schedule[-1] <= self.max_k:
            schedule.append(2 * schedule[-1])
        return plan([*schedule, self.max_k] if schedule[-1] < self.max_k else schedule)


@dataclass(frozen=True, kw_only=True)
class AbOptions:
    """Options of `tracekit ab` beside the design."""

    a: Annotated[
        str | None,
        Option(
            "Compare settings instead of commits: variables such as OMP_NUM_THREADS=1, a command, or "
            "label:NAME of stored runs. This is the base.",
            metavar="SETTING",
        ),
    ] = None
    b: Annotated[str | None, Option("The head; see --a.", metavar="SETTING")] = None
    value: Annotated[
        str | None,
        Option("Compare the number in the first group of this match in CMD's output.", metavar="REGEX"),
    ] = None
    unit: Annotated[str, Option("Unit of --value.", choices=tuple(UNITS))] = "ms"
    higher_is_better: Annotated[bool, Option("Higher --value is better.")] = False
    setup: Annotated[str, Option("Shell command to build each worktree.", metavar="CMD")] = ""
    allow_dirty: Annotated[bool, Option("Allow `.` as HEAD: the working tree with its changes.")] = False
    restart: Annotated[bool, Option("Discard the results of an interrupted or inconclusive call.")] = False


@dataclass(frozen=True, kw_only=True)
class TryOptions:
    """Options of `tracekit try`."""

    change: Annotated[
        tuple[str, ...],
        Option(
            "Try this change; repeatable. Default: those that fit the findings, and then the program.",
            metavar="NAME",
        ),
    ] = ()
    combine: Annotated[bool, Option("Then try the changes that help together.")] = False
    apply: Annotated[
        bool,
        Option("Print a diff of the program that makes them, where the lines are known; writes nothing."),
    ] = False
    k: Annotated[int, Option("Runs of each change before the first test.", spelling="--repeat", least=2)] = 5
    max_k: Annotated[int, Option("Maximum runs of each change.", spelling="--max-repeat", least=2)] = 20
    threshold: Annotated[float, Option("Smallest change of the step time that counts.")] = TRIED_THRESHOLD
    check_value: Annotated[
        str,
        Option(
            "Compare the numbers in the first group of each match in CMD's output, such as its losses.",
            metavar="REGEX",
        ),
    ] = ""
    restart: Annotated[bool, Option("Discard the results of an interrupted call.")] = False

    @property
    def design(self) -> Design:
        """The interim tests, as those of `tracekit ab`."""
        return Design(k=self.k, max_k=max(self.k, self.max_k), threshold=self.threshold, warmup=0)


@dataclass(frozen=True, kw_only=True)
class BisectOptions:
    """Options of `tracekit bisect`."""

    metric: Annotated[
        str | None,
        Option(
            "Metric to search. Default: for `tracekit collect` a count that differs between the ends, else "
            "step_time; step_time for --value, else wall.",
            choices=METRICS,
        ),
    ] = None
    value: Annotated[
        str | None,
        Option("Read the value from the first group of this match in CMD's output.", metavar="REGEX"),
    ] = None
    unit: Annotated[str, Option("Unit of --value.", choices=tuple(UNITS))] = "ms"
    reps: Annotated[
        int,
        Option(
            "Measurements per commit; inconclusive commits are measured more.",
            spelling="--repeat",
            aliases=("--reps",),
            least=2,
        ),
    ] = 3
    warmup: Annotated[int, Option("Warm-up measurements per commit, not counted.", least=0)] = 1
    threshold: Annotated[float, Option("Smallest change between GOOD and BAD worth a search.")] = THRESHOLD
    skip: Annotated[tuple[str, ...], Option("Skip this commit or version; repeatable.", metavar="REV")] = ()
    paths: Annotated[
        tuple[str, ...],
        Option("Only commits that change this path, relative to the root.", spelling="--path"),
    ] = ()
    all_parents: Annotated[bool, Option("Include commits of merged branches.")] = False
    signature: Annotated[
        str | None,
        Option(
            "Search for a change of a count per step, with one run per commit: kernels, copies, memsets, "
            "launches, ops, bytes (copied or set), the name of an op, or part of a kernel's name. CMD must "
            "be `tracekit collect`.",
            metavar="COUNT",
        ),
    ] = None
    setup: Annotated[str, Option("Shell command to build each worktree, run once.", metavar="CMD")] = ""
    dep: Annotated[
        str | None, Option("Search versions of this package instead of commits.", metavar="PACKAGE")
    ] = None
    versions: Annotated[str | None, Option("Versions from good to bad, comma-separated.", metavar="LIST")] = (
        None
    )
    prepare: Annotated[
        str,
        Option(
            "Shell command to install a version, such as `venv/bin/pip install torch=={version}`.",
            metavar="CMD",
        ),
    ] = ""


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """Options of `tracekit check`; `explain` compares profiles to find the causes of slowdowns."""

    metrics: Annotated[
        tuple[str, ...],
        Option("Metrics to check, comma-separated.", spelling="--metric", choices=CHECKED),
    ] = CHECKED
    threshold: Annotated[float, Option("Smallest slowdown or growth that counts as a regression.")] = (
        THRESHOLD
    )
    varying: Annotated[
        tuple[str, ...],
        Option("Ignore this difference, such as torch or batch_size; repeatable.", metavar="FIELD"),
    ] = ()
    least: Annotated[
        int,
        Option(
            "Runs a baseline should have; older commits with enough runs are preferred.",
            spelling="--min-runs",
            least=1,
        ),
    ] = 3
    tolerance: Annotated[
        int,
        Option(
            "Ignore differences of peak device memory up to this, in bytes.",
            spelling="--byte-tolerance",
            least=0,
        ),
    ] = 1 << 20
    allow_dirty: Annotated[bool, Option("Allow runs with uncommitted changes as the baseline.")] = False
    on_unknown: Annotated[
        str,
        Option(
            "Whether `cannot tell` exits with 3 or with 0; the report says which.", choices=("fail", "pass")
        ),
    ] = "fail"
    allow_missing_baseline: Annotated[bool, Option("Exit with 0 instead of 5 if there is no baseline.")] = (
        False
    )
    explain: bool = False
