"""Labels: numbered pairs of name and category, so that an interval needs only 4 bytes for both."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tracekit.schema import C, DeviceKind

from . import categories, reading
from .categories import CATEGORIES, CAUSES, IDLE, NUMBER

if TYPE_CHECKING:
    from tracekit.run import Run

    from .reading import Text

    Labels = npt.NDArray[np.uint32]

_COUNT = len(CATEGORIES)
_NONE = np.uint32(0xFFFF_FFFF)


@dataclass
class Names:
    """Collects names and labels of a run.

    Attributes:
        names: Distinct names.
        name_of: Name of each label, as an index into `names`.
        category_of: Category of each label.
    """

    names: list[str] = field(default_factory=list)
    name_of: list[int] = field(default_factory=list)
    category_of: list[int] = field(default_factory=list)
    _known: dict[str, int] = field(default_factory=dict)

    def name(self, text: str) -> int:
        """Return the number of a name; add it if new."""
        number = self._known.setdefault(text, len(self.names))
        if number == len(self.names):
            self.names.append(text)
        return number

    def label(self, name: int, category: int) -> int:
        """Add a label."""
        self.name_of.append(name)
        self.category_of.append(category)
        return len(self.name_of) - 1

    def labels(self, names: Text, category: npt.NDArray[np.uint8]) -> Labels:
        """Return the label of each row from its name and category."""
        numbers = np.array([self.name(text) for text in names.values], np.int64)
        found = np.empty(len(names.codes), np.uint32)
        lookup = np.full(len(names.values) * _COUNT, _NONE, np.uint32)
        for first in range(0, len(found), reading.STRIPE):
            part = slice(first, first + reading.STRIPE)
            key = names.codes[part].astype(np.int64) * _COUNT + category[part]
            for pair in np.unique(key[lookup[key] == _NONE]).tolist():
                lookup[pair] = self.label(int(numbers[pair // _COUNT]), pair % _COUNT)
            found[part] = lookup[key]
        return found

    def idle(self) -> dict[str, int]:
        """Add a label for idle time of each cause."""
        name = self.name(IDLE)
        return {cause: self.label(name, categories.of_cause(cause)) for cause in CAUSES}


def of_steps(run: Run, names: Names) -> Labels:
    """Return the label of each row of `steps`."""
    text = reading.text(run, "steps", C.NAME)
    return names.labels(text, np.full(len(text.codes), NUMBER["annotation"], np.uint8))


def of_host(run: Run, names: Names) -> Labels:
    """Return the label of each host interval."""
    kind = reading.text(run, "host_intervals", C.KIND)
    category = categories.of_kinds(kind.values)[kind.codes]
    return names.labels(reading.text(run, "host_intervals", C.NAME), category)


def of_device(run: Run, names: Names) -> Labels:
    """Return the label of each device interval."""
    kind, text, copy = (reading.text(run, "device_intervals", name) for name in (C.KIND, C.NAME, C.COPY_KIND))
    category = categories.of_kinds(kind.values)[kind.codes]
    kernels = _are(kind, DeviceKind.KERNEL)
    category[kernels] = _of_kernels(text.values, text.codes[kernels])
    copies = _are(kind, DeviceKind.MEMCPY)
    category[copies] = categories.of_copies(copy.values)[copy.codes[copies]]
    return names.labels(text, category)


def _are(kind: Text, wanted: str) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = kind.codes == (kind.values.index(wanted) if wanted in kind.values else -2)
    return found


def _of_kernels(values: list[str], codes: npt.NDArray[np.int32]) -> npt.NDArray[np.uint8]:
    """Return the category of each kernel; each distinct name is classified once."""
    lookup = np.zeros(len(values), np.uint8)
    for number in np.flatnonzero(np.bincount(codes, minlength=len(values))).tolist():
        lookup[number] = categories.of_kernel(values[number])
    return lookup[codes]
