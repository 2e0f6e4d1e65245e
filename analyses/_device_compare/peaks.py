"""Gain that two devices' peaks allow, by role and precision of an op."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from tracekit.diff.names import Role
from tracekit.run import busy
from tracekit.schema import C

from .._roofline.work import precision_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracekit.run import Run

    from .._roofline.devices import Device

MATRIX_ROLES = (Role.GEMM, Role.CONV, Role.ATTENTION)
LINK = "copy over the link"
PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")


@dataclass(frozen=True)
class Peaks:
    """Peaks of two devices, None if not listed."""

    base: Device | None
    head: Device | None

    @property
    def memory(self) -> float | None:
        """Ratio of the memory bandwidths, head over base."""
        return self.head.gb_per_s / self.base.gb_per_s if self.base and self.head else None

    def compute(self, precision: str) -> float | None:
        """Ratio of the peaks of matrix products, head over base; None if one is unknown."""
        pair = [device.peak(precision) if device else None for device in (self.base, self.head)]
        return pair[1] / pair[0] if pair[0] and pair[1] else None

    def allowed(self, role: str, precision: str) -> float | None:
        """Minimum gain of an op on the head if it uses both devices equally well; None if unknown.

        An op that multiplies matrices is bound by compute or memory: the minimum ratio counts. FP32 may run
        as TF32, so both count. Other ops are bound by memory, except copies to and from the host.
        """
        if role == LINK or (role in MATRIX_ROLES and not precision):
            return None
        if role not in MATRIX_ROLES or self.memory is None:
            return self.memory
        first = self.compute(precision)
        second = self.compute("tf32") if precision == "fp32" else None
        return None if first is None else min(one for one in (self.memory, first, second) if one is not None)


@dataclass(frozen=True)
class Ops:
    """The ops of a run, looked up by the device intervals they launched."""

    run: Run

    @cached_property
    def _dtypes(self) -> dict[int, str]:
        device = busy(self.run, [C.ROW_ID, C.OP_ROW])
        where = pc.field(C.INPUT_DTYPES).is_valid()
        ops = self.run.table("host_intervals", columns=[C.ROW_ID, C.INPUT_DTYPES], where=where)
        dtypes = dict(zip(ops[C.ROW_ID].tolist(), ops[C.INPUT_DTYPES].astype(str), strict=True))
        linked = device[device[C.OP_ROW].notna()]
        rows = zip(linked[C.ROW_ID].tolist(), linked[C.OP_ROW].tolist(), strict=True)
        return {row: dtypes[op] for row, op in rows if op in dtypes}

    def precision(self, rows: Iterable[int]) -> str:
        """Precision of the first floating-point input of the op of the first of these rows, or empty."""
        dtypes = next((self._dtypes[row] for row in rows if row in self._dtypes), "[]")
        precisions = (precision_of(str(one)) for one in json.loads(dtypes))
        return next((one for one in precisions if one in PRECISIONS), "")
