"""Shapes of data sets that published studies measure with; the data itself is always random."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class DatasetShape:
    """What of a data set decides the work: the shape of an image and how many classes there are.

    Attributes:
        channels: Of an image.
        classes: To tell apart.
        batch_size: Images in a step, where none is asked for.
        side: Height and width of an image; None where a study varies it.
    """

    channels: int
    classes: int
    batch_size: int
    side: int | None = None

    @property
    def defaults(self) -> dict[str, int]:
        """What it decides where the user names nothing."""
        sizes = {"batch_size": self.batch_size}
        return sizes if self.side is None else {**sizes, "resolution": self.side}


DATASET_SHAPES = {
    "mnist": DatasetShape(channels=1, side=28, classes=10, batch_size=128),
    "cifar10": DatasetShape(channels=3, side=32, classes=10, batch_size=128),
    "stl10": DatasetShape(channels=3, side=96, classes=10, batch_size=128),
    "pascal": DatasetShape(channels=3, classes=20, batch_size=16),
}
