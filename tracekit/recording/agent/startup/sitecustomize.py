"""Load the agent before a recorded program starts, then remove this folder from sys.path.

The program's environment may lack tracekit, so this imports only the standard library and the agent's files.
"""

from __future__ import annotations

import os
import sys


def _begin() -> None:
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 (pathlib would cost each start)
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != here]  # noqa: PTH100
    sys.modules.pop("sitecustomize", None)
    if "TRACEKIT_AGENT" in os.environ:
        from importlib.util import module_from_spec, spec_from_file_location

        folder = os.path.dirname(here)  # noqa: PTH120
        path = os.path.join(folder, "__init__.py")  # noqa: PTH118
        spec = spec_from_file_location("_tracekit_agent", path, submodule_search_locations=[folder])
        sys.modules["_tracekit_agent"] = module = module_from_spec(spec)  # type: ignore[arg-type]
        spec.loader.exec_module(module)  # type: ignore[union-attr]
        module.begin(os.environ["TRACEKIT_AGENT"])


if __name__ == "sitecustomize":
    _own = sys.modules[__name__]
    try:
        _begin()
    except Exception as _error:  # the program comes first
        sys.stderr.write(f"tracekit: cannot record this Python process: {_error!r}\n")
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401 (the environment's own)
    except ModuleNotFoundError as _missing:
        sys.modules["sitecustomize"] = _own  # importers expect it there
        if _missing.name != "sitecustomize":
            raise
