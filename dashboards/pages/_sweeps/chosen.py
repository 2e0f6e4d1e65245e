"""What of the runs is shown, as the address says it, with what suits where it says nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tracekit.measuring.metrics import STEP_TIME

from ...parts.links import Choice, choices
from .points import COMMIT, QUANTITIES, Point, points, varying

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dash.development.base_component import Component

    from tracekit.run import Run

    from ...view import View

_PLAIN = {"level", "mode", "dtype", "device", "gpu", "cpu"}
LINES, HEATMAP = "lines", "heatmap"
ALL = "all"
OFFERED = 10
"""Values of one setting that are offered at most."""


@dataclass(frozen=True)
class Chosen:
    """A sweep as it is shown.

    Attributes:
        workload: What ran.
        of: Its runs.
        vary: Settings in which they differ, with their values.
        x: Setting on the axis.
        quantity: What is shown of each run.
        fixed: Settings held at one value.
        form: `lines` or `heatmap`.
        rows: Second axis of the heatmap; empty without one.
        log: Whether the axis doubles from tick to tick.
    """

    workload: str
    of: tuple[Point, ...]
    vary: dict[str, list[Any]]
    x: str
    quantity: str
    fixed: dict[str, str]
    form: str
    rows: str
    log: bool

    @property
    def shown(self) -> list[Point]:
        """The runs with the fixed settings."""
        wanted = self.fixed.items()
        return [one for one in self.of if all(spelled(one.settings[name]) == text for name, text in wanted)]

    @property
    def free(self) -> list[str]:
        """Settings that tell the series apart."""
        differ = varying(self.shown)
        return [name for name in self.vary if name in differ and name != self.x]


def spelled(value: Any) -> str:
    """A setting as an address and a label spell it."""
    return "unknown" if value is None else str(value)


def chosen(view: View, runs: Sequence[Run]) -> Chosen | None:
    """What to show; None where no two runs of a workload differ in a setting."""
    every = points(runs)
    offered = workloads(every)
    if not offered:
        return None
    options = view.options
    workload = options["workload"] if options.get("workload") in offered else next(iter(offered))
    of = tuple(one for one in every if one.workload == workload)
    vary = offered[workload]
    axes = [name for name in vary if name != COMMIT]
    x = options["x"] if options.get("x") in axes else axes[0]
    quantity = options["y"] if options.get("y") in QUANTITIES else STEP_TIME
    form = HEATMAP if options.get("form") == HEATMAP and len(axes) > 1 else LINES
    others = [name for name in axes if name != x]
    rows = (options["rows"] if options.get("rows") in others else others[0]) if form == HEATMAP else ""
    fixed = _fixed(options, of, vary, x, rows)
    return Chosen(workload, of, vary, x, quantity, fixed, form, rows, options.get("log") != "off")


def workloads(every: Sequence[Point]) -> dict[str, dict[str, list[Any]]]:
    """Workloads whose runs differ in more than their commit, those of most runs first."""
    counts = Counter(point.workload for point in every)
    found = {
        name: varying([one for one in every if one.workload == name]) for name, _ in counts.most_common()
    }
    return {name: vary for name, vary in found.items() if set(vary) - {COMMIT}}


def _fixed(
    options: Mapping[str, str], of: Sequence[Point], vary: Mapping[str, list[Any]], x: str, rows: str
) -> dict[str, str]:
    """Settings held: those that the address holds, one commit, and in a heatmap all but its axes."""
    fixed = {}
    for name, values in vary.items():
        if name in {x, rows}:
            continue
        known = [spelled(value) for value in values]
        said = options.get(name, "")
        if said in known:
            fixed[name] = said
        elif name == COMMIT and (said != ALL or rows):
            fixed[name] = _most_swept(of)
        elif rows:
            fixed[name] = known[0]
    return fixed


def _most_swept(of: Sequence[Point]) -> str:
    """The commit at which the most settings were tried; the newest of several."""
    tried: dict[str, set[str]] = {}
    for point in of:
        own = {name: value for name, value in point.settings.items() if name != COMMIT}
        tried.setdefault(spelled(point.settings[COMMIT]), set()).add(repr(own))
    most = max(len(settings) for settings in tried.values())
    newest = (spelled(one.settings[COMMIT]) for one in reversed(of))
    return next(commit for commit in newest if len(tried[commit]) == most)


def controls(view: View, one: Chosen, offered: Sequence[str]) -> list[Component]:
    """Every choice as links."""
    axes = [name for name in one.vary if name != COMMIT]
    found = [
        _row(view, "Workload", "workload", {name: name for name in offered}, one.workload),
        _row(view, "Show", "y", {key: of.title for key, of in QUANTITIES.items()}, one.quantity),
        _row(view, "Over", "x", {name: words(name) for name in axes}, one.x),
    ]
    if len(axes) > 1:
        found.append(_row(view, "As", "form", {LINES: "lines", HEATMAP: "heatmap"}, one.form))
    if one.form == LINES:
        found.append(_row(view, "Axis", "log", {"on": "doubling", "off": "even"}, "on" if one.log else "off"))
    else:
        names = {name: words(name) for name in axes if name != one.x}
        found.append(_row(view, "Against", "rows", names, one.rows))
    return [*found, *_filters(view, one)]


def _filters(view: View, one: Chosen) -> list[Component]:
    found = []
    for name, values in one.vary.items():
        if name in {one.x, one.rows}:
            continue
        known = [spelled(value) for value in values]
        now = one.fixed.get(name, ALL)
        kept = known[-OFFERED:] if now in {ALL, *known[-OFFERED:]} else [*known[-OFFERED:], now]
        every = {ALL: ALL} if one.form == LINES else {}
        found.append(_row(view, words(name), name, every | {text: text for text in kept}, now))
    return found


def _row(view: View, label: str, option: str, offered: Mapping[str, str], now: str) -> Component:
    return choices(
        label[:1].upper() + label[1:],
        [
            Choice(text, view.href(options=view.options | {option: key}), key == now)
            for key, text in offered.items()
        ],
    )


def told(name: str, text: str) -> str:
    """A setting in words; what speaks for itself is not named.

    Example:
        >>> told("batch_size", "8"), told("mode", "train")
        ('batch size 8', 'train')
    """
    return text if name in _PLAIN and text != "unknown" else f"{words(name)} {text}"


def words(name: str) -> str:
    """A setting's name in words."""
    return name.replace("_", " ")
