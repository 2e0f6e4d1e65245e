"""A trace, and what a checkout has."""

from pathlib import Path

import tests
from samples.simulator import write
from samples.simulator.examples import training

write(training(), Path("trace.json"))
checkout = Path(tests.__file__).parents[1]
for name in ("fuzz", "pyproject.toml", "samples", "tests"):
    Path(name).symlink_to(checkout / name)
