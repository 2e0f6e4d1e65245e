"""The small traces and exports from which large ones are made."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from samples.simulator import Program, nsys, write

if TYPE_CHECKING:
    from pathlib import Path

STEPS, LAYERS = 4, 50


@dataclass(frozen=True, kw_only=True)
class Base:
    """A small file.

    Attributes:
        name: What tables call it.
        path: Where it is.
        on_device: Whether a device worked in it.
    """

    name: str
    path: Path
    on_device: bool = True


def program() -> Program:
    """Some training steps: ops in one another, kernels of six names, allocations, a copy a step."""
    program = Program()
    for _ in range(STEPS):
        with program.step():
            for layer in range(LAYERS):
                with program.op("aten::linear"), program.op("aten::addmm", shapes=[[64, 256], [256, 256]]):
                    program.allocate(64 * 256 * 4)
                    program.kernel(f"gemm_{layer % 5}", 9_000, grid=(8, 4, 1))
                with program.op("aten::relu", shapes=[[64, 256]]):
                    program.kernel("relu", 3_000, grid=(64, 1, 1))
            program.copy("H2D", 65_536)
    return program


def trace(folder: Path) -> Path:
    """The program's trace, as large as a small real one."""
    return write(program(), folder / "simulated.json")


def export(folder: Path) -> Path:
    """The program's export of Nsight Systems, with the short names of kernels that real ones have."""
    path = nsys.write(program(), folder / "simulated.sqlite")
    with closing(sqlite3.connect(path)) as file:
        file.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN shortName INTEGER")
        file.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET shortName = demangledName")
        file.commit()
    return path
