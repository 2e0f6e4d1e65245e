"""What the names and kinds of host rows say of them; each distinct one is asked about once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.ingest.link.lanes import Inherited
from tracekit.ingest.rows import NONE
from tracekit.ingest.texts import NO_STRINGS
from tracekit.schema import C, HostKind, Phase

if TYPE_CHECKING:
    import numpy.typing as npt

    from tracekit.ingest.rows import Rows
    from tracekit.ingest.texts import Strings

    Ints = npt.NDArray[np.integer[Any]]
    Bools = npt.NDArray[np.bool_]

MODULE_MARKER = "nn.Module: "
PHASES = tuple(Phase)

_PHASE_MARKERS: tuple[tuple[Phase, re.Pattern[str]], ...] = (
    (Phase.ZERO_GRAD, re.compile(r".*zero_grad")),
    (Phase.OPTIMIZER, re.compile(r"Optimizer\.step#")),
    (Phase.DATALOAD, re.compile(r"enumerate\(DataLoader\)")),
    (Phase.BACKWARD, re.compile(r"autograd::engine::evaluate_function|\w+Backward\d*$")),
)


class Marks:
    """What host rows say of themselves."""

    def __init__(self, texts: dict[str, Strings]) -> None:
        names, kinds = texts.get(C.NAME, NO_STRINGS), texts.get(C.KIND, NO_STRINGS)
        self._phase = np.full(len(names.values) + 1, NONE)
        for phase, pattern in _PHASE_MARKERS:
            self._phase[names.matching(pattern.match)] = PHASES.index(phase)
        self._module = names.matching(lambda name: name.startswith(MODULE_MARKER))
        self._op = kinds.among([HostKind.OP])
        self._call = kinds.among([HostKind.RUNTIME, HostKind.SYNC])

    def is_op(self, rows: Rows) -> Bools:
        """Which rows are ops."""
        return self._op.take(rows.integers(C.KIND))

    def is_call(self, rows: Rows) -> Bools:
        """Which rows are calls of the device's runtime or driver."""
        return self._call.take(rows.integers(C.KIND))

    def own(self, rows: Rows, first: int) -> Inherited:
        """What rows hand on to those that they enclose.

        Args:
            rows: Rows of the host.
            first: Row id of the first of them.
        """
        name = rows.integers(C.NAME)
        module = self._module.take(name)
        forward = (rows.integers(C.SEQUENCE) >= 0) & (rows.integers(C.FWD_TID) <= 0)
        return Inherited(
            op=np.where(self.is_op(rows), np.arange(first, first + rows.count), NONE),
            phase=self._phase.take(name),
            forward=np.where(forward | module, 0, NONE),
            module=np.where(module, name, NONE),
        )


def phases(inherited: Inherited) -> Ints:
    """Index into `PHASES` of each row, -1 where the trace does not say.

    The innermost marker decides; forward is what carries or lies under an autograd sequence number of the
    forward pass, or under a module's call, outside of the other phases.
    """
    forward = (inherited.phase == NONE) & (inherited.forward != NONE)
    return np.where(forward, PHASES.index(Phase.FORWARD), inherited.phase)
