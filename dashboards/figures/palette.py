"""Colours of figures: told apart by people with any colour vision, and visible in both themes."""

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
"""After Okabe and Ito, the blue lightened and the yellow left out so that each shows on white and on dark."""
UP: Final = "#d55e00"
"""What grew."""
DOWN: Final = "#009e73"
"""What shrank."""
TOTAL: Final = "#868e96"
"""What the changes start from and lead to."""
SEQUENTIAL: Final = "Cividis"
"""Scale of a heatmap: even in lightness, and the same to colour-blind people."""
DIVERGING: Final = (
    (0.0, "#2166ac"),
    (0.25, "#92c5de"),
    (0.5, "#f0f0f0"),
    (0.75, "#fdae61"),
    (1.0, "#b2510f"),
)
"""Scale of a heatmap whose values are below and above zero: blue below, orange above."""
