"""A process in which `tracekit collect` has one more option: its declaration, and a collector that uses it.

Prints the help page, what the recorded processes were handed, and `run.json` of both runs as one object.
"""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from importlib.util import find_spec, module_from_spec
from io import StringIO
from pathlib import Path
from typing import Any

DECLARATION = '    dummy_level: Annotated[int, Option("Level of the dummy.", least=0)] = 1\n'
ECHO = "import json, sys; print(json.dumps({'event': 'result', **json.load(sys.stdin)}))"
VARIABLE = "import os, pathlib; pathlib.Path('handed.json').write_text(os.environ['TRACEKIT_AGENT'])"


def declare() -> None:
    """Load the module of the declarations with one line more."""
    spec = find_spec("tracekit.workloads.options")
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).read_text()
    place = source.index("    stacks: Annotated")
    module = sys.modules[spec.name] = module_from_spec(spec)
    exec(compile(source[:place] + DECLARATION + source[place:], spec.origin, "exec"), vars(module))  # noqa: S102


def main() -> None:
    declare()
    from tracekit.collectors.program import run as run_program
    from tracekit.collectors.protocol import run_process

    from samples.simulator import Program, write
    from tracekit import registry
    from tracekit.cli.main import run
    from tracekit.recording.collector import Recording

    handed: list[Any] = []

    class Collector:
        def record(self, request: Any, directory: Path, *, progress: Any) -> Recording:
            result = run_process([sys.executable, "-c", ECHO], request, directory, progress)
            handed.append(result["request"]["dummy_level"])
            return self._recorded(directory)

        def record_program(self, program: Any, directory: Path, *, progress: Any) -> Recording:
            run_program(program, directory)
            handed.append(json.loads(Path("handed.json").read_text())["dummy_level"])
            return self._recorded(directory)

        def _recorded(self, directory: Path) -> Recording:
            program = Program()
            with program.op("aten::relu"):
                pass
            trace = write(program, directory / "trace.json")
            return Recording(traces=(trace,), device="cpu", threads=1, version="1", timings=None)

    load = registry.load
    registry.load = lambda group, name: Collector if group == registry.COLLECTORS else load(group, name)
    shown = StringIO()
    with redirect_stdout(shown):
        codes = [
            run(["collect", "--help"]),
            run(["collect", "--dummy-level", "-1", "--workload", "mnist_cnn"]),
            run(["collect", "--dummy-level", "2", "--workload", "mnist_cnn", "--store", "store"]),
            run(["collect", "--dummy-level", "3", "--store", "store", "--", sys.executable, "-c", VARIABLE]),
        ]
    runs = [json.loads(path.read_text()) for path in sorted(Path("store").glob("*/run.json"))]
    json.dump({"codes": codes, "shown": shown.getvalue(), "handed": handed, "runs": runs}, sys.stdout)


if __name__ == "__main__":
    main()
