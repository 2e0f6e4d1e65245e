"""The PCIe link of a device under load, and its throughput."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit.nvml import M

from .._shared.pcie import link_gb_per_s

if TYPE_CHECKING:
    from .scene import Scene
    from .series import Stats


@dataclass(frozen=True)
class Link:
    """A device's link; unknown values are None.

    Attributes:
        generation: Highest one sampled while the device was busy, since an idle link falls back.
        width: Lanes, likewise.
        loaded: Number of samples while the device was busy.
        received: GB/s to the device inside the window.
        sent: GB/s from the device, likewise.
    """

    generation: int | None
    width: int | None
    most_generation: int | None
    most_width: int | None
    loaded: int
    received: Stats | None
    sent: Stats | None

    @property
    def rate(self) -> float | None:
        """GB/s in one direction of the link under load."""
        return link_gb_per_s(self.generation, self.width)

    @property
    def most(self) -> float | None:
        """Maximum GB/s in one direction on this machine."""
        return link_gb_per_s(self.most_generation, self.most_width)

    @property
    def known(self) -> bool:
        """Whether any value was sampled."""
        return any(
            one is not None for one in (self.generation, self.most_generation, self.received, self.sent)
        )


def link(scene: Scene, device: int) -> Link:
    """The link of one device."""
    generation, loaded = _under_load(scene, device, M.PCIE_GENERATION)
    width, _ = _under_load(scene, device, M.PCIE_WIDTH)
    received, sent = scene.nvml(device, M.PCIE_RX), scene.nvml(device, M.PCIE_TX)
    return Link(
        generation,
        width,
        _integer(scene.constant(device, M.PCIE_GENERATION_MAX)),
        _integer(scene.constant(device, M.PCIE_WIDTH_MAX)),
        loaded,
        received.stats(scene.window) if received else None,
        sent.stats(scene.window) if sent else None,
    )


def _under_load(scene: Scene, device: int, metric: str) -> tuple[int | None, int]:
    found = scene.nvml(device, metric)
    if found is None:
        return None, 0
    loaded = found.values[found.within(scene.busy(device)) > 0]
    return (_integer(float(loaded.max())), len(loaded)) if len(loaded) else (None, 0)


def _integer(value: float | None) -> int | None:
    return None if value is None else int(value)
