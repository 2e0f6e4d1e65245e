"""Write the trace that the page reads."""

from pathlib import Path

from samples.simulator import write
from samples.simulator.planted.serving import schedule, server, vllm

write(server(schedule(400), vllm), Path("server.json.gz"))
