"""Two traces: before and after a change that lets the host check indices."""

from pathlib import Path

from samples.simulator import write
from samples.simulator.planted.regressions import program, synchronizing_bound_checks

change = synchronizing_bound_checks()
write(program(change.base), Path("before.json"))
write(program(change.head), Path("after.json"))
