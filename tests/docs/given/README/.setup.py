"""A trace, and those of two ranks."""

import gzip
from pathlib import Path

from samples.simulator import write
from samples.simulator.examples import training
from samples.simulator.planted import memory_ranks

plain = write(training(), Path("trace.json"))
Path("trace.json.gz").write_bytes(gzip.compress(plain.read_bytes()))
plain.unlink()
for rank, program in enumerate(memory_ranks.job(ranks=2, late=1)):
    write(program, Path(f"rank{rank}.json"))
