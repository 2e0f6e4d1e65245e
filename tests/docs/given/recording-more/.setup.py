"""A trace."""

import gzip
from pathlib import Path

from samples.simulator import write
from samples.simulator.examples import training

plain = write(training(), Path("trace.json"))
Path("trace.json.gz").write_bytes(gzip.compress(plain.read_bytes()))
plain.unlink()
