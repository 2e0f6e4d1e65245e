"""A trace, and one for each rank of a job."""

import gzip
from pathlib import Path

from samples.simulator import write
from samples.simulator.examples import training
from samples.simulator.planted import memory_ranks

plain = write(training(), Path("trace.json"))
Path("trace.json.gz").write_bytes(gzip.compress(plain.read_bytes()))
plain.unlink()
Path("job").mkdir()
for rank, program in enumerate(memory_ranks.job(ranks=2, late=1)):
    write(program, Path("job") / f"rank{rank}.json")
