"""What the workloads of libraries share: the library itself, or one line on why it does not import."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

from tracekit.errors import PluginError


def imported(name: str) -> Any:
    """A library that is installed.

    Raises:
        ModuleNotFoundError: It is not installed.
        PluginError: It cannot be imported; in one line, for all of its workloads alike.
    """
    if find_spec(name) is None:
        raise ModuleNotFoundError(f"no module named {name!r}", name=name)
    try:
        return import_module(name)
    except Exception as error:  # a library built for another torch fails in many ways
        said = f"{type(error).__name__}: {error}".splitlines()[0]
        raise PluginError(
            f"{source(name)} is installed but cannot be imported: {said}",
            hint=f"install a build of {name} that matches this torch, or uninstall it",
        ) from error


def part(library: str, name: str) -> Any:
    """One class of a library that imports its parts when they are asked for.

    Raises:
        PluginError: It cannot be imported; the line names the cause, not what followed from it.
    """
    try:
        return getattr(imported(library), name)
    except PluginError:
        raise
    except Exception as error:
        first = _first(error)
        said = f"{type(first).__name__}: {first}".splitlines()[0]
        raise PluginError(
            f"{source(library)} cannot import its {name}: {said}",
            hint=f"fix or uninstall the packages that {library} fails to import",
        ) from error


def _first(error: BaseException) -> BaseException:
    while before := error.__cause__ or error.__context__:
        error = before
    return error


def source(name: str) -> str:
    """A library and its version, as a workload names where it comes from."""
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return name
