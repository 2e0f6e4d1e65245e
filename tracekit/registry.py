"""The version, and plug-ins by entry point, such as collectors, workloads and analyses, also from outside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any

from tracekit.errors import MissingDependencyError, PluginError, TracekitError, did_you_mean

VERSION = "0.2.0"
COLLECTORS = "tracekit.collectors"
WORKLOADS = "tracekit.workloads"
ANALYSES = "tracekit.analyses"
PAGES = "tracekit.pages"
CHANGES = "tracekit.changes"
_KINDS = {
    COLLECTORS: "collector",
    WORKLOADS: "workload",
    ANALYSES: "analysis",
    PAGES: "page",
    CHANGES: "change",
}
GROUPS = (COLLECTORS, WORKLOADS, ANALYSES, PAGES, CHANGES)
_EXTRAS = {
    **{name: name for name in ("torch", "transformers", "timm", "torchvision")},
    **{name: name for name in ("mlflow", "tensorboard", "wandb")},
    **dict.fromkeys(("dash", "dash_ag_grid", "dash_mantine_components", "plotly", "waitress"), "dashboard"),
    **dict.fromkeys(("dask", "distributed"), "scale"),
    "numba": "fast",
    **dict.fromkeys(("mcp", "mcp_types", "starlette", "uvicorn"), "mcp"),
}
"""Extras of tracekit-torch by the module that they install."""
PROVIDERS = "tracekit.workload_providers"
"""Functions that list workloads which depend on other installed packages: by name, where
each is made (`module:attribute`). They import nothing that is slow."""


@dataclass(frozen=True)
class Broken:
    """A plug-in that cannot be loaded: its group, name, entry point value, the reason and what to do.

    `extra` is the extra of tracekit-torch that it needs, if that is the reason.
    """

    group: str
    name: str
    value: str
    reason: str
    hint: str = ""
    extra: str = ""


@cache
def _points(group: str) -> tuple[EntryPoint, ...]:
    points = [*entry_points(group=group), *(_provider_workloads() if group == WORKLOADS else ())]
    return tuple(sorted(points, key=lambda point: (point.name, point.value)))


def _provider_workloads() -> Iterator[EntryPoint]:
    """Yield the workloads of all providers; one that fails provides none and is listed in `find_broken`."""
    for provider in _points(PROVIDERS):
        with suppress(PluginError, MissingDependencyError):
            for name, value in _call_provider(provider).items():
                yield EntryPoint(name, value, WORKLOADS)


def _call_provider(provider: EntryPoint) -> dict[str, str]:
    try:
        names: dict[str, str] = _import(provider)()
    except (PluginError, MissingDependencyError):
        raise
    except Exception as error:
        raise PluginError(
            f"provider of workloads {provider.name!r} ({provider.value}) failed: "
            f"{type(error).__name__}: {error}",
            hint="reinstall or uninstall its package",
        ) from error
    return names


def find(group: str, name: str) -> EntryPoint:
    """Return the entry point of a name; raise PluginError if it is unknown, or registered by two modules."""
    matches = {point.value: point for point in _points(group) if point.name == name}
    kind = _KINDS.get(group, group)
    if not matches:
        registered = names(group)
        hint = did_you_mean(name, registered) or f"known: {', '.join(registered) or 'none'}"
        raise PluginError(f"unknown {kind} {name!r}", hint=hint)
    if len(matches) > 1:
        message = f"{kind} name {name!r} is registered twice: {' and '.join(matches)}"
        raise PluginError(message, hint="uninstall one of the packages")
    return next(iter(matches.values()))


def names(group: str) -> list[str]:
    """Return the names registered in a group, sorted, each once; nothing is imported.

    Example:
        >>> "gpu_breakdown" in names(ANALYSES)
        True
    """
    return sorted({point.name for point in _points(group)})


def load(group: str, name: str) -> Any:
    """Import and return one plug-in object.

    Raises:
        PluginError: The name is unknown, registered by two modules, or its import fails.
        MissingDependencyError: The plug-in needs a package that is not installed.
    """
    return _import(find(group, name))


def load_all(group: str) -> tuple[list[Any], dict[str, list[str]]]:
    """Load a group: return the loaded objects by name, and the names of failed ones by reason.

    Example:
        >>> analyses, broken = load_all(ANALYSES)
        >>> broken
        {}
    """
    loaded: list[Any] = []
    broken: dict[str, list[str]] = {}
    for name in names(group):
        try:
            loaded.append(load(group, name))
        except TracekitError as error:
            broken.setdefault(error.message, []).append(name)
    return loaded, broken


def _import(point: EntryPoint) -> Any:
    try:
        return point.load()
    except TracekitError:
        raise
    except ModuleNotFoundError as error:
        message = f"{point.name!r} needs the package {error.name!r}"
        raise MissingDependencyError(message, hint=_how_to_install(error.name or "")) from error
    except Exception as error:
        raise PluginError(
            f"plug-in {point.name!r} ({point.value}) cannot be imported: {type(error).__name__}: {error}",
            hint="reinstall or uninstall its package",
        ) from error


def _how_to_install(module: str) -> str:
    if module.startswith("tracekit"):
        return "reinstall tracekit-torch"
    return (
        f"pip install 'tracekit-torch[{_EXTRAS[module]}]'" if module in _EXTRAS else f"pip install {module}"
    )


def find_broken() -> list[Broken]:
    """Return every plug-in that cannot be loaded, with the reason (imports all of them: for `doctor`)."""
    points = [
        (group, {point.name: point for point in reversed(_points(group))}[name])
        for group in GROUPS
        for name in names(group)
    ]
    points += [(PROVIDERS, point) for point in _points(PROVIDERS)]
    broken = []
    for group, point in points:
        try:
            _call_provider(point) if group == PROVIDERS else load(group, point.name)
        except (PluginError, MissingDependencyError) as error:
            extra = "" if group == PROVIDERS else _EXTRAS.get(getattr(error.__cause__, "name", ""), "")
            broken.append(Broken(group, point.name, point.value, error.message, error.hint, extra))
    return broken


def import_extra(module: str, needs: str) -> ModuleType:
    """Import a module whose packages are an extra of tracekit.

    Raises:
        MissingDependencyError: A package is not installed; `needs` starts the message.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        raise MissingDependencyError(
            f"{needs} the package {error.name!r}", hint=_how_to_install(missing)
        ) from error
