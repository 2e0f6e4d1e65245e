"""Entry point of `tracekit`: loads commands lazily and prints expected errors as one line."""

from __future__ import annotations

import gc
import os
import signal
import sys
from importlib import import_module
from itertools import takewhile
from keyword import iskeyword
from typing import Any

from tracekit.cli import lazy_click as click
from tracekit.cli.progress import print_error
from tracekit.errors import ExitCode, TracekitError, did_you_mean, hide_warnings

_NAMES = (
    "doctor", "config", "workloads", "collect", "sweep", "suite", "import", "runs", "show", "analyze",
    "findings", "diff", "check", "bisect", "ab", "try", "calibration", "noise", "query", "export",
    "report", "dashboard", "open", "mcp", "skill", "rm", "verify", "gc", "sample",
)  # fmt: skip
COMMANDS = {name: f"tracekit.cli.{name}{'_' * iskeyword(name)}" for name in _NAMES}
"""Modules of the commands by name, in the order of the help page."""

MIN_NEW_OBJECTS = 200_000
"""New objects from which garbage is searched; a command makes nearly as many by loading libraries."""


class LazyGroup(click.Group):
    """A group that imports the module of a command only when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in the order of the help page."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command; None if it does not exist."""
        module = COMMANDS.get(cmd_name)
        return import_module(module).command if module else None

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Return a context in which the options of commands have the configured defaults."""
        return super().make_context(*args, **kwargs, default_map=_Configured())


class _Configured(dict[str, Any]):
    """Configured values of options by command, found when the command is used."""

    def get(self, name: str, default: Any = None) -> Any:
        """Return the configured values of a command's options by parameter; None for another name."""
        if name not in COMMANDS:
            return default
        from tracekit.cli.options import configured_values

        return configured_values(name, import_module(COMMANDS[name]).command)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tracekit-torch")
@click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
def cli() -> None:
    """Collect GPU and CPU profiles of PyTorch programs and find where the time goes.

    Start with `tracekit collect --workload resnet50`, `tracekit import trace.json.gz`, or a trace that
    `tracekit sample` copies.
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its exit code."""
    _open_streams()
    hide_warnings()
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # ignored under nohup
            signal.signal(number, lambda number, _: sys.exit(128 + number))  # runs cleanup
    gc.set_threshold(MIN_NEW_OBJECTS)
    code = run(sys.argv[1:] if arguments is None else arguments)
    gc.freeze()  # skips the last collection at exit
    sys.exit(code)


def _open_streams() -> None:
    """Open the null device in place of closed standard streams, as in `tracekit runs >&-`.

    Otherwise the next opened file would take their number, and child processes would print into it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
            if opened == number:
                os.set_inheritable(opened, True)  # noqa: FBT003 (has no keyword)
            setattr(sys, name, open(opened, "r" if name == "stdin" else "w", closefd=False))  # noqa: SIM115


def run(arguments: list[str]) -> int:
    """Run the command line and return its exit code.

    Example:
        >>> run(["--version"])
        tracekit, version 0.2.0
        0
    """
    debug = "--debug" in takewhile(lambda word: word.startswith("-"), arguments)  # before the command's own
    try:
        return int(cli.main(arguments, prog_name="tracekit", standalone_mode=False) or 0)
    except TracekitError as error:
        return _fail(error, error.exit_code, debug=debug)
    except click.ClickException as error:
        click.echo(f"tracekit: {_describe_usage_error(error)}", err=True)
        return ExitCode.UNUSABLE
    except (KeyboardInterrupt, click.Abort):
        click.echo("tracekit: interrupted; unfinished results are not saved", err=True)
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()  # the reader closed the pipe, as in `tracekit runs | head`
        return ExitCode.OK
    except OSError as error:
        return _fail(_convert_os_error(error), ExitCode.UNUSABLE, debug=debug)


def _describe_usage_error(error: click.ClickException) -> str:
    """Return what is wrong with the arguments, the nearest name, and the help page to read."""
    context = getattr(error, "ctx", None)
    message = error.format_message()
    if isinstance(error, click.NoSuchOption):
        params = context.command.get_params(context) if context else []
        flags = [flag for param in params for flag in param.opts]
        message = f"unknown option {error.option_name}; {did_you_mean(error.option_name, flags)}"
    message = message.rstrip("; ")
    stop = "" if message.endswith((".", "?")) else "."
    return f"{message}{stop} Try '{context.command_path if context else 'tracekit'} --help'."


def _fail(error: TracekitError, code: ExitCode, *, debug: bool) -> int:
    if debug:
        import traceback

        traceback.print_exception(error)
    print_error(error)
    return code


def _convert_os_error(error: OSError) -> TracekitError:
    reason = os.strerror(error.errno) if error.errno else str(error)
    named = f"{error.filename}: {reason}" if error.filename else reason
    unusable = TracekitError(named, hint="rerun with `tracekit --debug` for a traceback")
    unusable.__cause__ = error
    return unusable
