"""Options that several commands share, and what they resolve to: the store, a run and its peaks."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from tracekit.cli import completion
from tracekit.cli import lazy_click as click
from tracekit.errors import UnusableInputError, did_you_mean

if TYPE_CHECKING:
    from tracekit.runs.run import Run
    from tracekit.runs.store import Store
    from tracekit.storage import Place
    from tracekit.workloads.options import Option


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])?")


class Age(click.ParamType):  # type: ignore[type-arg]
    """A duration such as `30m`, `12h`, `7d` or `2w`, in seconds; a number without a unit is in days."""

    name = "age"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Convert to seconds; a float is returned unchanged."""
        if isinstance(value, float):
            return value
        match = _AGE.fullmatch(str(value).strip().lower())
        if match is None or not math.isfinite(float(match[1])):
            self.fail(f"{str(value)!r} is not a duration; use 30m, 12h, 7d or 2w", param, ctx)
        return float(match[1]) * _UNITS[match[2] or "d"]


class Percent(click.ParamType):  # type: ignore[type-arg]
    """A percentage such as `7%` or `7`, or a fraction such as `0.07`, converted to a fraction."""

    name = "percent"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Convert to a fraction; a float is returned unchanged."""
        if isinstance(value, float):
            return value
        text = str(value).strip()
        try:
            number = float(text.removesuffix("%"))
        except ValueError:
            self.fail(f"{text!r} is not a percentage; use 7%", param, ctx)
        share = number / 100 if text.endswith("%") or number >= 1 else number
        if not 0 < share < float("inf"):
            self.fail("it must be above 0", param, ctx)
        return share


if TYPE_CHECKING:
    Decorator = Callable[[Callable[..., object]], Callable[..., object]]


class Report(click.ParamType):  # type: ignore[type-arg]
    """A file whose ending is that of a format, converted to its path and the format."""

    name = "file"
    endings: ClassVar[dict[str, str]] = {
        ".md": "markdown",
        ".html": "html",
        ".json": "json",
        ".csv": "csv",
        ".xml": "junit",
        ".prom": "prometheus",
        ".jsonl": "otlp",
    }

    def __init__(self, formats: Sequence[str]) -> None:
        self.known = {ending: name for ending, name in self.endings.items() if name in formats}

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[Path, str]:
        """Convert to a path and a format."""
        if isinstance(value, tuple):
            return value
        path = Path(str(value))
        if path.suffix not in self.known:
            self.fail(f"{str(path)!r} has the ending of no format; use {', '.join(self.known)}", param, ctx)
        return path, self.known[path.suffix]


class Words(click.ParamType):  # type: ignore[type-arg]
    """Words of a choice, comma-separated, of an option that may also be repeated."""

    def __init__(self, choices: Sequence[str]) -> None:
        self.choices, self.name = choices, "words"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Split into words; each must be one of the choices."""
        if isinstance(value, tuple):
            return value
        words = tuple(word.strip() for word in str(value).split(","))
        for word in words:
            if word not in self.choices:
                hint = did_you_mean(word, self.choices) or f"use {', '.join(self.choices)}"
                what = param.opts[0].lstrip("-") if param else "value"
                self.fail(f"unknown {what} {word!r}; {hint}", param, ctx)
        return words


FORMATS = ("table", "json", "csv", "markdown")
REPORTS = ("table", "json", "markdown")
"""Formats of reports, which are text rather than rows."""
METRICS = ("prometheus", "otlp")
"""Formats of a check's metrics for monitoring."""
IN_CI = ("sarif", "github")
"""Formats of findings for continuous integration."""
VERDICTS = (*REPORTS, "html", "junit", "github")
"""Formats of verdicts, some of which are for continuous integration."""

store_option = click.option(
    "--store",
    metavar="PLACE",
    shell_complete=completion.folder,
    help="Store of runs: a folder, s3://bucket/prefix or gs://bucket/prefix; default $TRACEKIT_STORE, "
    "else .tracekit/ in the git repository or the current folder.",
)

fresh_option = click.option("--no-cache", "fresh", is_flag=True, help="Ignore cached results.")


def declared_options(*options: Option, strict: bool = False) -> Decorator:
    """Return the decorator that adds declared options to a command.

    If strict, the command line refuses values out of range and unknown words, as its help says; else
    `tracekit.workloads.options.check` does.
    """

    def add(function: Callable[..., object]) -> Callable[..., object]:
        for declared in reversed(options):
            flags = f"{declared.flag}/--no-{declared.flag[2:]}" if declared.negatable else declared.flag
            function = click.option(
                flags,
                declared.name,
                aliases=declared.aliases,
                type=_click_type(declared, strict=strict),
                is_flag=declared.kind is bool or None,
                multiple=declared.multiple,
                default=f"{100 * declared.default:g}%" if declared.kind is float else declared.default,
                show_default=declared.default != "",
                metavar=declared.metavar or _list_choices(declared),
                shell_complete=completion.choice(*declared.choices)
                if declared.choices
                else completion.OF_OPTION.get(declared.name),
                help=declared.help,
            )(function)
        return function

    return add


def _list_choices(option: Option) -> str | None:
    """Return the choices as help shows them; None without any."""
    many = ",..." * option.multiple
    return f"[{'|'.join(option.choices)}]{many}" if option.choices else None


def _click_type(option: Option, *, strict: bool) -> Any:
    if option.kind is float:
        return Percent()
    if strict and option.choices:
        return Words(option.choices) if option.multiple else click.Choice(option.choices)
    return click.IntRange(min=option.least) if strict and option.least is not None else option.kind


def options_of(*, strict: bool = False, **kinds: type) -> Decorator:
    """Return the decorator that adds the options that dataclasses declare.

    The command receives an instance of each by keyword, or None if a required option is not given. `strict`
    is that of `declared_options`.
    """
    from tracekit.workloads.options import list_options

    def add(function: Callable[..., object]) -> Callable[..., object]:
        @functools.wraps(function)
        def command(*arguments: object, **values: Any) -> object:
            instances = {}
            for keyword, kind in kinds.items():
                chosen = {
                    option.name: _flatten(option, values.pop(option.name)) for option in list_options(kind)
                }
                required = [field.name for field in fields(kind) if field.default is MISSING]
                instances[keyword] = (
                    None if any(chosen[name] is None for name in required) else kind(**chosen)
                )
            return function(*arguments, **values, **instances)

        return declared_options(*chain(*map(list_options, kinds.values())), strict=strict)(command)

    return add


def _flatten(option: Option, value: Any) -> Any:
    """Return the words of all uses of a repeatable option with choices, without duplicates."""
    if not (option.multiple and option.choices) or not value:
        return value
    words = chain.from_iterable((item,) if isinstance(item, str) else item for item in value)
    return tuple(dict.fromkeys(words))


def scheduler_option(text: str) -> Decorator:
    """Return the option for a Dask cluster; the text ends in a comma, before an example."""
    return click.option("--scheduler", metavar="ADDRESS", help=f"{text} such as tcp://host:8786.")


def option_name(param: click.Parameter) -> str:
    """Return the name of an option as it is configured: its flag with underscores; empty for an argument."""
    flag = next((flag for flag in param.opts if flag.startswith("--")), "")
    return flag.removeprefix("--").replace("-", "_")


def configured_values(command: str, definition: click.Command) -> dict[str, Any]:
    """Return the values that a project or the environment configures for a command's options, by parameter.

    Args:
        command: Name of the command.
        definition: The command.
    """
    from tracekit.runs.configuration import STORE, find_setting

    values: dict[str, Any] = {}
    for param in definition.params:
        name = option_name(param)
        if not name or name == STORE:  # `locate` finds the store, also for `import tracekit`
            continue
        setting = find_setting(command, name, Path.cwd())
        if setting is None:
            continue
        value = setting.value
        if getattr(param, "multiple", False):
            value = value.split(",") if isinstance(value, str) else value
        values[str(param.name)] = value if isinstance(value, str | bool | list) else str(value)
    return values


def format_of(what: str, names: Sequence[str]) -> Decorator:
    """Return the option for the output format."""
    return click.option(
        "--format",
        "output_format",
        type=click.Choice(names),
        default="table",
        show_default=True,
        help=f"Output format of the {what}.",
    )


format_option = format_of("data", FORMATS)


@dataclass(frozen=True)
class Output:
    """Where a command writes its result: to a file, or else to stdout, and to more files in their formats."""

    output_format: str
    output: Path | None
    also: tuple[tuple[Path, str], ...] = ()

    @property
    def formats(self) -> set[str]:
        """All formats that are written."""
        return {self.output_format, *(name for _, name in self.also)}

    def write(self, render: Callable[[str], str]) -> None:
        """Write the result, which `render` returns in a format."""
        for path, name in self.also:
            path.write_text(render(name), encoding="utf-8")
        text = render(self.output_format)
        if self.output:
            self.output.write_text(text, encoding="utf-8")
        else:
            click.echo(text, nl=False)


def result_options(
    formats: Sequence[str], *further: Decorator, what: str = "result", also: bool = False
) -> Decorator:
    """Return the decorator that adds the options of an `Output`, which the command receives as `output`.

    Args:
        formats: Formats of the command.
        further: Options to list after the format.
        what: What the command writes, for help.
        also: Whether it can write more files.
    """
    kind = Report(formats)
    also_option = click.option(
        "--also",
        type=kind,
        multiple=True,
        metavar="FILE",
        shell_complete=completion.file,
        help=f"Also write this file, in the format of its ending: {', '.join(kind.known)}. Repeatable.",
    )
    output_option = click.option(
        "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file."
    )
    added: list[Decorator] = [
        format_of(what, formats),
        *further,
        output_option,
        *([also_option] if also else []),
    ]
    return gather("output", Output, *added)


def gather(keyword: str, kind: type, *options: Decorator) -> Decorator:
    """Return the decorator that adds options, whose values a command receives as one dataclass.

    Args:
        keyword: Parameter of the command.
        kind: The dataclass; options that are none of its fields are passed on.
        options: Decorators that add options and arguments, in the order of help.
    """

    def add(function: Callable[..., object]) -> Callable[..., object]:
        @functools.wraps(function)
        def command(*arguments: object, **values: Any) -> object:
            chosen = {field.name: values.pop(field.name) for field in fields(kind) if field.name in values}
            return function(*arguments, **values, **{keyword: kind(**chosen)})

        for option in reversed(options):
            option(command)
        return command

    return add


def open_store(option: str | None) -> Store:
    """Open the store given by the option or the environment."""
    from tracekit.runs.store import Store, locate

    return Store(locate(option))


capture_option = click.option(
    "--capture-trace",
    "captures",
    multiple=True,
    metavar="FILE",
    shell_complete=completion.file,
    help="Trace of the capture of a CUDA or HIP graph that a raw trace replays: attributes the graph's "
    "kernels to ops and modules; repeatable.",
)


def capture_traces(paths: Sequence[str]) -> list[Place]:
    """Return the traces of captures that a user names.

    Raises:
        UnusableInputError: One is not a file.
    """
    from tracekit import storage

    places = [place for path in paths for place in storage.expand(path)]
    for place in places:
        if storage.kind(place) is not storage.Kind.FILE:
            raise UnusableInputError(
                f"--capture-trace {place} is not a file", hint="give the trace of the graph's capture"
            )
    return places


peaks_option = click.option(
    "--peaks",
    metavar="NAME|FILE",
    help="Peaks to use instead of those of the recorded devices: the name of a listed device such as "
    "'H100 SXM', or a JSON file.",
)


def with_peaks(run: Run, peaks: str | None, names: Sequence[str] = ()) -> Run:
    """Replace the peaks of a run's devices by those that the user gives, if any.

    Args:
        run: The run.
        peaks: Name of a listed device, or a file.
        names: Analyses to run; all by default.

    Raises:
        UnusableInputError: The device is not listed, the file is unusable, or no named analysis uses peaks.
    """
    if peaks is None:
        return run
    from tracekit import analysis
    from tracekit.runs.devices import parse_device

    listed = parse_device(peaks)
    if names and not any(analysis.get(name).uses_peaks for name in names):
        using = ", ".join(other.name for other in analysis.available() if other.uses_peaks)
        raise UnusableInputError(f"--peaks has no effect on {', '.join(names)}", hint=f"it is for {using}")
    return run.with_peaks(listed)
