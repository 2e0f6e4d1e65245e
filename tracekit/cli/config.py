"""`tracekit config`: show what is configured, and where."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from tracekit import render
from tracekit.analysis import Column
from tracekit.cli import lazy_click as click
from tracekit.cli.options import format_option, option_name, store_option
from tracekit.errors import UnusableInputError, did_you_mean
from tracekit.runs.configuration import (
    PATTERNS,
    PERSONAL,
    STORE,
    configured_store,
    find_setting,
    project_settings,
)

COLUMNS = (
    Column("name", "", "name of the option or setting"),
    Column("value", "id", "configured value"),
    Column("origin", "id", "where it is set"),
    Column("commands", "prose", "commands that use it"),
)


@click.command("config")
@format_option
@store_option
def command(*, output_format: str, store: str | None) -> None:
    """Show the settings of this folder: the store, and configured defaults of options with their origin.

    An option of a command is configured by `[tool.tracekit]` or `[tool.tracekit.COMMAND]` in the nearest
    pyproject.toml, or by $TRACEKIT_OPTION or $TRACEKIT_COMMAND_OPTION, which take precedence. On the command
    line it has precedence over all. Keys that no command has are an error.

    \b
    TRACEKIT_THRESHOLD=3% tracekit config
    """  # noqa: D301 (click reads the \b)
    from tracekit.cli.main import COMMANDS

    folder = Path.cwd()
    options = {
        name: sorted(filter(None, map(option_name, import_module(module).command.params)))
        for name, module in COMMANDS.items()
    }
    _refuse_unknown(folder, options)
    rows = [_describe_store(store, folder), *_settings(folder, options)]
    text = render.rows(rows, COLUMNS, output_format, command="config", key="settings")
    click.echo(text, nl=False)


def _describe_store(option: str | None, folder: Path) -> dict[str, Any]:
    from tracekit.runs.store import ENVIRONMENT_VARIABLE, locate

    origins = [
        (option, "--store"),
        (os.environ.get(ENVIRONMENT_VARIABLE), f"${ENVIRONMENT_VARIABLE}"),
        (configured_store(folder), f"[tool.tracekit] in {project_settings(folder)[0]}"),
        ("default", "default"),
    ]
    origin = next(origin for value, origin in origins if value)
    return {"name": STORE, "value": str(locate(option)), "origin": origin, "commands": "all"}


def _settings(folder: Path, options: dict[str, list[str]]) -> Iterator[dict[str, Any]]:
    """Yield a row for each configured value, with the commands that it holds for."""
    file, settings = project_settings(folder)
    for key in PATTERNS:
        if key in settings:
            origin = f"[tool.tracekit] in {file}"
            yield {"name": key, "value": str(settings[key]), "origin": origin, "commands": "all"}
    commands: dict[tuple[str, str, str], list[str]] = {}
    for name, flags in options.items():
        for flag in flags:
            setting = find_setting(name, flag, folder) if flag != STORE else None
            if setting:
                commands.setdefault((flag, str(setting.value), setting.origin), []).append(name)
    for (flag, value, origin), names in sorted(commands.items()):
        yield {"name": flag, "value": value, "origin": origin, "commands": ", ".join(names)}


def _refuse_unknown(folder: Path, options: dict[str, list[str]]) -> None:
    """Raise an error that names a key which no command has, or that a project cannot set."""
    file, settings = project_settings(folder)
    known = {flag for flags in options.values() for flag in flags}.union({STORE}, PATTERNS) - PERSONAL
    for key, value in settings.items():
        if isinstance(value, dict):
            if key not in options:
                _refuse(f"{file}: [tool.tracekit.{key}] is no command", key, [*options])
            allowed = [flag for flag in options[key] if flag not in PERSONAL]
            for name in value:
                if name not in allowed:
                    _refuse(f"{file}: {name!r} in [tool.tracekit.{key}] cannot be configured", name, allowed)
        elif key not in known:
            _refuse(f"{file}: {key!r} in [tool.tracekit] cannot be configured", key, sorted(known))


def _refuse(message: str, name: str, known: list[str]) -> None:
    raise UnusableInputError(message, hint=did_you_mean(name, known) or f"known: {', '.join(known)}")
