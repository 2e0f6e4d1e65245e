"""What bounds a run: one sentence, and one bar of the parts of its window."""

from __future__ import annotations

from dash import html
from dash.development.base_component import Component

from tracekit.analysis import Bottleneck
from tracekit.analysis.kernel_names import brief
from tracekit.analysis.verdict import Part, Verdict
from tracekit.render import human

from .charts import aria

COLORS = {
    Bottleneck.COMPUTE: "#3b82c4",
    Bottleneck.COMMUNICATION: "#009e73",
    Bottleneck.STRAGGLERS: "#7a5195",
    Bottleneck.COPIES: "#e69f00",
    Bottleneck.LAUNCH: "#d55e00",
    Bottleneck.QUEUED: "#56b4e9",
    Bottleneck.INPUT: "#cc79a7",
    Bottleneck.SYNC: "#a89200",
    Bottleneck.PROFILER: "#9467bd",
    Bottleneck.UNKNOWN: "#868e96",
    Bottleneck.EDGES: "#ced4da",
}
_WIDTH = 40
_MIN_SHARE = 0.005
"""Smaller parts are summed."""


def show_bottleneck(verdict: Verdict) -> list[Component]:
    """Show what bounds the run, with each part of the window as a segment and in words."""
    shown: list[Component] = [html.P(verdict.sentence, className="tk-answer tk-bound")]
    if not verdict.parts:
        return shown
    parts = _visible_parts(verdict.parts)
    words = [f"{brief(part.label, _WIDTH)} {human(part.share, 'share')}" for part in parts]
    bar = html.Div(
        [_segment(part) for part in parts],
        className="tk-bound-bar",
        role="img",
        **aria(label=f"Of {verdict.window}: {', '.join(words)}"),
    )
    swatches = [
        html.Span(className="tk-bound-swatch", style={"background": COLORS[part.bound]}) for part in parts
    ]
    legend = html.Ul(
        [html.Li([swatch, html.Span(text)]) for swatch, text in zip(swatches, words, strict=True)],
        className="tk-bound-legend",
        **aria(label=f"Parts of {verdict.window}"),
    )
    return [*shown, bar, legend]


def _visible_parts(parts: tuple[Part, ...]) -> list[Part]:
    """Return the parts that can be seen, and the sum of the others."""
    small = [part for part in parts if part.share < _MIN_SHARE]
    shown = [part for part in parts if part.share >= _MIN_SHARE]
    if len(small) < 2:
        return list(parts)
    rest = sum(part.dur_ns for part in small), sum(part.share for part in small)
    return [*shown, Part(Bottleneck.UNKNOWN, f"{len(small)} smaller parts", *rest)]


def _segment(part: Part) -> Component:
    time = human(part.dur_ns, "ns")
    return html.Span(
        title=f"{part.label}: {time}, {human(part.share, 'share')}",
        style={"width": f"{100 * part.share:.3f}%", "background": COLORS[part.bound]},
    )
