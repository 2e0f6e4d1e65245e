"""Run metadata: workload, commit, versions, device, command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import html

from tracekit.kernel_names import brief
from tracekit.render.cells import clean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dash.development.base_component import Component

    from tracekit.meta import Git, RunMeta

_SETTINGS = ("mode", "level", "batch_size", "resolution", "dtype", "device")
_WIDTH = 72


def facts(meta: RunMeta) -> list[tuple[str, str]]:
    """Return the known metadata by name.

    Args:
        meta: The run's metadata.
    """
    known = {
        "Workload": _workload(meta.workload),
        "Label": meta.label or "",
        "Commit": _commit(meta.git),
        "GPU": _gpus(meta.environment, meta.fingerprint),
        "torch": _version(meta.environment, "torch"),
        "CUDA": _version(meta.environment, "cuda"),
        "Ranks": _ranks(meta.fingerprint),
        "Command": " ".join(meta.command),
        "Recorded": meta.created_at.replace("T", " ")[:16] if meta.collector.name != "import" else "",
        "Imported from": _sources(meta.collector.options),
    }
    return [(name, clean(text)) for name, text in known.items() if text]


def shown(meta: RunMeta) -> Component:
    """Show the metadata."""
    pairs = [
        html.Div(
            [
                html.Dt(name),
                html.Dd(brief(text, _WIDTH) if len(text) > _WIDTH else text, title=text[:2_000]),
            ]
        )
        for name, text in facts(meta)
    ]
    return html.Dl(pairs, className="tk-facts")


def _workload(workload: Mapping[str, Any] | None) -> str:
    if not workload:
        return ""
    words = [
        f"{name.replace('_', ' ')} {workload[name]}" for name in _SETTINGS if workload.get(name) is not None
    ]
    return ", ".join([str(workload.get("name", "")), *words])


def _commit(git: Git | None) -> str:
    if git is None:
        return ""
    branch = f" on {git.branch}" if git.branch else ""
    return git.sha[:10] + branch + (", with uncommitted changes" if git.dirty else "")


def _gpus(environment: Mapping[str, Any], fingerprint: Mapping[str, Any]) -> str:
    gpus = environment.get("gpus") or []
    names = [str(gpu.get("name") or "unnamed GPU") for gpu in gpus]
    if not names or fingerprint.get("device") == "cpu":
        return ""
    counted = {name: names.count(name) for name in names}
    return ", ".join(name if count == 1 else f"{count} × {name}" for name, count in counted.items())


def _version(environment: Mapping[str, Any], name: str) -> str:
    return str(environment.get(name) or "")


def _ranks(fingerprint: Mapping[str, Any]) -> str:
    size = fingerprint.get("world_size")
    return str(size) if isinstance(size, int) and size > 1 else ""


def _sources(options: Mapping[str, Any]) -> str:
    names = [str(source.get("name", "")) for source in options.get("sources") or []]
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "") if names else ""
