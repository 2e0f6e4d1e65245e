"""The version, and plug-ins by entry point: collectors, workloads, analyses and pages, also from outside."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from tracekit.errors import MissingDependencyError, PluginError, TracekitError, did_you_mean

VERSION = "0.1.0"
COLLECTORS = "tracekit.collectors"
WORKLOADS = "tracekit.workloads"
ANALYSES = "tracekit.analyses"
PAGES = "tracekit.pages"
_KINDS = {COLLECTORS: "collector", WORKLOADS: "workload", ANALYSES: "analysis", PAGES: "page"}
GROUPS = (COLLECTORS, WORKLOADS, ANALYSES, PAGES)
_EXTRAS = {
    **{name: name for name in ("torch", "transformers", "timm", "torchvision")},
    **dict.fromkeys(("dash", "dash_ag_grid", "dash_mantine_components", "plotly", "waitress"), "dashboard"),
    **dict.fromkeys(("dask", "distributed"), "scale"),
    "numba": "fast",
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
    known = [*entry_points(group=group), *(_provided() if group == WORKLOADS else ())]
    return tuple(sorted(known, key=lambda point: (point.name, point.value)))


def _provided() -> list[EntryPoint]:
    """Workloads of all providers; one that fails provides none and is listed in `broken`."""
    found: list[EntryPoint] = []
    for provider in _points(PROVIDERS):
        with suppress(PluginError, MissingDependencyError):
            found += [EntryPoint(name, value, WORKLOADS) for name, value in _asked(provider).items()]
    return found


def _asked(provider: EntryPoint) -> dict[str, str]:
    try:
        names: dict[str, str] = _imported(provider)()
    except (PluginError, MissingDependencyError):
        raise
    except Exception as error:
        raise PluginError(
            f"provider of workloads {provider.name!r} ({provider.value}) failed: "
            f"{type(error).__name__}: {error}",
            hint="reinstall or uninstall its package",
        ) from error
    return names


def _find(group: str, name: str) -> EntryPoint:
    matches = {point.value: point for point in _points(group) if point.name == name}
    kind = _KINDS.get(group, group)
    if not matches:
        known = names(group)
        hint = did_you_mean(name, known) or f"known: {', '.join(known) or 'none'}"
        raise PluginError(f"unknown {kind} {name!r}", hint=hint)
    if len(matches) > 1:
        raise PluginError(
            f"{kind} name {name!r} is registered twice: {' and '.join(matches)}",
            hint="uninstall one of the packages",
        )
    return next(iter(matches.values()))


def names(group: str) -> list[str]:
    """Names registered in a group, sorted, each once; nothing is imported.

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
    return _imported(_find(group, name))


def load_all(group: str) -> tuple[list[Any], dict[str, list[str]]]:
    """Load a group: return the loaded objects by name, and the names of failed ones by reason.

    Example:
        >>> analyses, broken = load_all(ANALYSES)
        >>> broken
        {}
    """
    found: list[Any] = []
    broken: dict[str, list[str]] = {}
    for name in names(group):
        try:
            found.append(load(group, name))
        except TracekitError as error:
            broken.setdefault(error.message, []).append(name)
    return found, broken


def _imported(point: EntryPoint) -> Any:
    try:
        return point.load()
    except TracekitError:
        raise
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"{point.name!r} needs the package {error.name!r}",
            hint=_how_to_install(error.name or ""),
        ) from error
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


def broken() -> list[Broken]:
    """Every plug-in that cannot be loaded, with the reason (imports all of them: for `doctor`)."""
    found = []
    for group in GROUPS:
        for name in names(group):
            try:
                load(group, name)
            except (PluginError, MissingDependencyError) as error:
                value = next(point.value for point in _points(group) if point.name == name)
                extra = _EXTRAS.get(getattr(error.__cause__, "name", ""), "")
                found.append(Broken(group, name, value, error.message, error.hint, extra))
    return [*found, *_broken_providers()]


def _broken_providers() -> list[Broken]:
    found = []
    for point in _points(PROVIDERS):
        try:
            _asked(point)
        except (PluginError, MissingDependencyError) as error:
            found.append(Broken(PROVIDERS, point.name, point.value, error.message, error.hint))
    return found
