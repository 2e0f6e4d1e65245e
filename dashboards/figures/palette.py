"""Colours of figures: colour-blind safe, and visible in both themes."""

from __future__ import annotations

from typing import Final

COLORWAY: Final = (
    "#3b82c4",  # blue
    "#e69f00",  # orange
    "#009e73",  # green
    "#d55e00",  # vermilion
    "#cc79a7",  # pink
    "#56b4e9",  # sky
    "#9467bd",  # violet
    "#868e96",  # grey
)
"""After Okabe and Ito, with a lighter blue and no yellow, for contrast on white and on dark."""
UP: Final = "#d55e00"
"""Increases."""
DOWN: Final = "#009e73"
"""Decreases."""
TOTAL: Final = "#868e96"
"""Totals."""
SEQUENTIAL: Final = "Cividis"
"""Colour scale of heatmaps: perceptually uniform and colour-blind safe."""
DIVERGING: Final = (
    (0.0, "#2166ac"),
    (0.25, "#92c5de"),
    (0.5, "#f0f0f0"),
    (0.75, "#fdae61"),
    (1.0, "#b2510f"),
)
"""Diverging colour scale: blue below zero, orange above."""
