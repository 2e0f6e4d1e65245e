"""Help texts of nsys by version: its options and their values.

Those of 2022.4.2 and 2023.4.4 are as the real ones print them (`tests/integration/test_nsys_real.py` compares
the options that tracekit uses), those of others as the vendor's user guides list them.
"""

from __future__ import annotations

from dataclasses import dataclass

CURRENT = "2026.4.1.112"
VERSIONS = (
    CURRENT,
    *("2025.6.3.541", "2025.1.1.103", "2024.6.1.90", "2023.4.4.54", "2022.4.2.1", "2022.1.1.61"),
    "2021.2.1.58",
)
"""From new to old: 2021.2 has no `--capture-range-end`, 2022.1 no `--cuda-graph-trace`, and so on."""
USAGE = "usage: nsys {0} [<args>] {1}\n"


@dataclass(frozen=True)
class Option:
    """An option of one or more versions.

    Attributes:
        name: Name, with the letter after a comma if it has one, and what follows the equals sign.
        text: Help; values are quoted.
        since: First version.
        before: First version without it, or with the next entry of this name.
    """

    name: str
    text: str
    since: str = "2021.2"
    before: str = "9999"

    def exists_in(self, version: str) -> bool:
        """Whether a version has it in this form."""
        return _number(self.since) <= _number(version) < _number(self.before)

    def shown(self) -> str:
        """As nsys prints it."""
        spelling, _, placeholder = self.name.partition("=")
        name, _, letter = spelling.partition(",")
        return f"\t{f'-{letter}, ' * bool(letter)}--{name}={placeholder}\n\n\t   {self.text}\n\n"


_BOOL = "Possible values are 'true' or 'false'."
_TRACES = "'cuda', 'nvtx', 'cublas', 'cublas-verbose', 'cusparse', 'mpi', 'oshmem', 'ucx', 'osrt', "
_SHUTDOWN = "'repeat-shutdown:N'. Use --kill to choose the signal."
_TABLES = "'arrow', 'arrowdir', 'hdf', 'jsonlines', 'parquetdir', 'sqlite', "
PROFILE = (
    Option("backtrace,b", "Possible values are 'auto', 'fp', 'lbr', 'dwarf', 'none'."),
    Option("capture-range,c", "Possible values are 'none', 'cudaProfilerApi', 'nvtx'.", before="2021.3"),
    Option("capture-range,c", "Possible values are none, cudaProfilerApi, nvtx, hotkey.", "2021.3"),
    Option(
        "capture-range-end",
        f"Possible values are 'none', 'stop', 'stop-shutdown', 'repeat[:N]' or {_SHUTDOWN}",
        "2021.3",
        "2026.1",
    ),
    Option(
        "capture-range-end",
        f"Possible values are 'none', 'stop', 'stop-shutdown', 'repeat[:N][:mode]' or {_SHUTDOWN}",
        "2026.1",
    ),
    Option("cpuctxsw", "Possible values are 'process-tree', 'system-wide', or 'none'.", "2021.4"),
    Option("cuda-event-trace", "Possible values are 'auto', 'true', 'false'.", "2025.1"),
    Option("cuda-graph-trace", "Possible values are 'graph' or 'node'.", "2022.2", "2023.4"),
    Option(
        "cuda-graph-trace=<granularity>[:<launch origin>]",
        "Possible values for <granularity> are 'graph' or 'node'. Those for <launch origin> are 'host-only'.",
        "2023.4",
    ),
    Option("cuda-memory-usage", _BOOL),
    Option("cuda-trace-scope", "Possible values are 'process-tree' or 'system-wide'.", "2025.6"),
    Option("cudabacktrace", "Possible values are 'all', 'none', 'kernel', 'memory', 'sync', 'other'."),
    Option("delay,y", "Collection start delay in seconds."),
    Option("discard-environment", f"{_BOOL} Available on Linux only.", "2025.3"),
    Option("duration,d", "Collection duration in seconds."),
    Option("env-var,e", "Set environment variables: A=B,C=D."),
    Option(
        "export",
        "Possible formats are: none arrow sqlite hdf text json",
        "2021.4",
        "2024.6",
    ),
    Option(
        "export",
        f"Possible values are {_TABLES}'text', 'none'.",
        "2024.6",
    ),
    Option("force-overwrite,f", _BOOL),
    Option("gpu-metrics-device", "Possible values are 'help', 'all', 'none' or GPU IDs.", before="2024.5"),
    Option("gpu-metrics-devices", "GPU IDs, see --gpu-metrics-devices=help; 'all', 'none'.", "2024.5"),
    Option("kill", "Possible values are 'none', 'sigterm', 'sigkill'.", before="2021.3"),
    Option("kill", "Possible values are 'none', 'sigkill', 'sigterm' or a signal number.", "2021.3"),
    Option("nccl-trace", "Values are separated by commas.", "2026.1"),
    Option("nvtx-capture,p", "range@domain, range or range@*."),
    Option("output,o", "Output report filename. %q{ENV_VAR}, %h, %p and %% are replaced."),
    Option("python-backtrace", "Possible values are 'cuda', 'none'.", "2023.1"),
    Option("python-sampling", _BOOL, "2023.1"),
    Option(
        "pytorch",
        "Possible values are 'autograd-nvtx', 'autograd-shapes-nvtx', 'functions-trace' or 'none'.",
        "2024.5",
    ),
    Option("sample,s", "Possible values are 'cpu' or 'none'.", before="2021.4"),
    Option("sample,s", "Possible values are 'process-tree', 'system-wide' or 'none'.", "2021.4"),
    Option("session-new", "Name the session created by the command."),
    Option("show-output,w", _BOOL),
    Option("stats", _BOOL),
    Option("stop-on-range-end,x", _BOOL, before="2021.3"),
    Option("stop-on-exit,x", _BOOL, "2021.3"),
    Option(
        "trace,t", f"Possible values are {_TRACES}'none'. cudnn is linked with CUDA tracing.", before="2021.3"
    ),
    Option("trace,t", f"Possible values are {_TRACES}'cudnn', 'opengl', 'none'.", "2021.3", "2025.6"),
    Option("trace,t", f"Possible values are 'cuda-sw', {_TRACES}'cudnn', 'opengl', 'none'.", "2025.6"),
    Option("trace-fork-before-exec", _BOOL),
    Option("wait", "Possible values are 'primary', 'all'."),
)
EXPORT = (
    Option("force-overwrite,f", _BOOL),
    Option("lazy,l", _BOOL, "2022.4"),
    Option("output,o", "Output filename."),
    Option("tables", "POSIX patterns of tables.", "2023.4"),
    Option("type,t", "Possible values are: sqlite, hdf, text, json, info, arrow.", before="2024.6"),
    Option(
        "type,t",
        f"Possible values are {_TABLES}'info', 'text'.",
        "2024.6",
        "2026.1",
    ),
    Option(
        "type,t",
        f"Possible values are {_TABLES}'info'.",
        "2026.1",
    ),
)


def profile_help(version: str) -> str:
    """The text of `nsys profile --help`."""
    return _help("profile", "[application] [<application args>]", PROFILE, version)


def export_help(version: str) -> str:
    """The text of `nsys export --help`."""
    return _help("export", "[nsys-rep-file]", EXPORT, version)


def _help(command: str, what: str, options: tuple[Option, ...], version: str) -> str:
    shown = [one.shown() for one in options if one.exists_in(version)]
    return "\n".join([USAGE.format(command, what), *shown])


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
