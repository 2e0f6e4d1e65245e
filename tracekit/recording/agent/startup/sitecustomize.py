"""Imported by every Python of a recorded program before it runs; leaves no trace of itself in sys.path.

It runs in programs of any environment, so it uses the standard library and the files beside it only.
"""

from __future__ import annotations

import os
import sys


def _begin() -> None:
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 (pathlib would cost each start)
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != here]  # noqa: PTH100
    sys.modules.pop("sitecustomize", None)
    if "TRACEKIT_INSIDE" in os.environ:
        from importlib.util import module_from_spec, spec_from_file_location

        folder = os.path.dirname(here)  # noqa: PTH120
        place = os.path.join(folder, "__init__.py")  # noqa: PTH118
        spec = spec_from_file_location("_tracekit_inside", place, submodule_search_locations=[folder])
        if spec and spec.loader:
            sys.modules["_tracekit_inside"] = module = module_from_spec(spec)
            spec.loader.exec_module(module)
            module.begin(os.environ["TRACEKIT_INSIDE"])


if __name__ == "sitecustomize":
    _own = sys.modules[__name__]
    try:
        _begin()
    except Exception as _error:  # whatever is wrong here, the program comes first
        sys.stderr.write(f"tracekit: cannot record inside this Python: {_error!r}\n")
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401 (of the environment)
    except ModuleNotFoundError as _missing:
        sys.modules["sitecustomize"] = _own  # what imports it expects to find it
        if _missing.name != "sitecustomize":
            raise
