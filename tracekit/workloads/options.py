"""Options of `tracekit collect`, each declared once.

A field of `RecordingOptions`, `WorkloadOptions`, or of `ProgramOptions` in `tracekit.recording.agent.agent`,
declares an option. The parameter of the command and its help panel, the check of its range, the values handed
to recorded processes, and what `run.json` contains are derived from it. In runs stored before an option was
added its value is unknown, which is no difference in comparisons.

The values go this way; only the code that uses an option names it again:

1. `tracekit collect` receives an instance of each of the three classes.
2. In `tracekit.recording.collector`, `Request` has the fields of `RecordingOptions` and `WorkloadOptions`,
   `Program` those of `RecordingOptions` and `ProgramOptions`. Collectors read them.
3. The process of a workload receives the `Request`, and builds the workload from the `Options` of `base.py`,
   most often in `build_program` of `program.py`, whose model all levels and libtorch take as it is. The C++
   program of libtorch makes batches and clears gradients itself.
4. Processes of the user's program receive the options in an environment variable. The agent in them reads
   those of `ProgramOptions`, which it declares itself because it imports nothing of tracekit, and those that
   are fields of `AgentRequest`.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, MISSING, dataclass, fields, replace
from enum import Enum
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from tracekit.errors import UnusableInputError


class Scope(Enum):
    """Subject of an option, which determines where its value is stored and passed."""

    WORK = "work"
    """Recorded work: `workload` and `command` of `run.json`, and the recorded process."""
    PROFILER = "profiler"
    """Profiler: `command` of `run.json`, and the recorded process."""
    RUN = "run"
    """Stored run: neither."""


@dataclass(frozen=True)
class Option:
    """Annotation of a field that declares an option.

    Attributes:
        help: Text of the help page.
        metavar: Placeholder of its value in the help page; default: its type.
        least: Smallest value.
        choices: Allowed values, if they are the same for all workloads and collectors.
        spelling: Spelling on the command line, if it is not that of the name.
        aliases: Further spellings, which help does not list.
        negatable: Whether there is also a switch `--no-...`.
        scope: Subject of the option.
        compared: Whether it is a field of the fingerprint of a built-in workload.
        name: Name of the field.
        kind: `bool`, `int` or `str`; `float` for a share, given as a percentage.
        multiple: Whether it may be given several times, for a tuple.
        default: Default value; None if there is none.
    """

    help: str
    _: KW_ONLY
    metavar: str | None = None
    least: int | None = None
    choices: tuple[str, ...] = ()
    spelling: str = ""
    aliases: tuple[str, ...] = ()
    negatable: bool = False
    scope: Scope = Scope.WORK
    compared: bool = True
    name: str = ""
    kind: type = str
    multiple: bool = False
    default: Any = None

    @property
    def flag(self) -> str:
        """The spelling on the command line."""
        return self.spelling or flag(self.name)

    def check(self, value: Any) -> None:
        """Refuse a value that is too low or not among the choices.

        Raises:
            UnusableInputError: The value is refused; the hint names those that are possible.
        """
        if value is None:
            return
        if self.least is not None and value < self.least:
            hint = f"use {self.flag} {self.least} or more"
            raise UnusableInputError(f"{self.flag} {value} is too low", hint=hint)
        if self.choices and value not in self.choices:
            hint = f"use {self.flag} {' or '.join(self.choices)}"
            raise UnusableInputError(f"unknown {self.name} {value!r}", hint=hint)


def flag(name: str) -> str:
    """Return the spelling of an option on the command line.

    Example:
        >>> flag("keep_trace")
        '--keep-trace'
    """
    return "--" + name.replace("_", "-")


def list_options(options: type) -> tuple[Option, ...]:
    """Return the options that a dataclass declares, in the order of its fields.

    Example:
        >>> [(option.flag, option.kind, option.default) for option in list_options(RecordingOptions)][:2]
        [('--collector', <class 'str'>, 'auto'), ('--steps', <class 'int'>, 5)]
    """
    hints = get_type_hints(options, include_extras=True)
    declared = []
    for field in fields(options):
        hint = hints[field.name]
        plain, *annotations = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        if field.metadata:  # of a class that does not import `Option`
            scope = Scope(field.metadata.get("scope", Scope.WORK))
            annotations.append(Option(**{**field.metadata, "scope": scope}))
        default = None if field.default is MISSING else field.default
        kind = (get_args(plain) or (plain,))[0]  # of `int | None`, int
        multiple = get_origin(plain) is tuple
        derived: dict[str, Any] = {"name": field.name, "kind": kind, "multiple": multiple, "default": default}
        declared += [replace(item, **derived) for item in annotations if isinstance(item, Option)]
    return tuple(declared)


def values(options: Any, *scopes: Scope) -> dict[str, Any]:
    """Return the values of options by name, of the given scopes or of WORK and PROFILER.

    Example:
        >>> values(RecordingOptions(steps=10), Scope.PROFILER)
        {'stacks': False, 'compile_artifacts': False, 'light': False}
    """
    wanted = scopes or (Scope.WORK, Scope.PROFILER)
    declared = list_options(type(options))
    return {option.name: getattr(options, option.name) for option in declared if option.scope in wanted}


def check(options: Any) -> None:
    """Refuse values that are too low or not among the choices.

    Raises:
        UnusableInputError: A value is refused.
    """
    for option in list_options(type(options)):
        option.check(getattr(options, option.name))


@dataclass(frozen=True, kw_only=True)
class RecordingOptions:
    """Options of every recording."""

    collector: Annotated[str, Option("torch, nsys or auto.", metavar="NAME", scope=Scope.RUN)] = "auto"
    steps: Annotated[int, Option("Steps to profile; a workload also times at least as many.", least=1)] = 5
    repeat: Annotated[int, Option("Number of runs.", least=1, scope=Scope.RUN)] = 1
    label: Annotated[str | None, Option("Name for the run.", scope=Scope.RUN)] = None
    stacks: Annotated[bool, Option("Record Python call stacks; slows the profile.", scope=Scope.PROFILER)] = (
        False
    )
    compile_artifacts: Annotated[
        bool,
        Option(
            "Keep the source lines and ops of compiled kernels, and profile each C++ kernel.",
            scope=Scope.PROFILER,
        ),
    ] = False
    light: Annotated[
        bool, Option("Record no shapes and no memory, which costs less.", scope=Scope.PROFILER)
    ] = False
    keep_trace: Annotated[
        bool, Option("Keep the raw trace of each rank in the run, as trace.json.gz.", scope=Scope.RUN)
    ] = False
    change: Annotated[
        tuple[str, ...],
        Option("Make this change inside the program, as `tracekit try` does; repeatable.", metavar="NAME"),
    ] = ()
    alternate: Annotated[
        bool,
        Option("Turn each change on and off between the steps before profiling, and compare their times."),
    ] = False


@dataclass(frozen=True, kw_only=True)
class WorkloadOptions:
    """Options of a built-in workload; None leaves a value to the workload, or to torch."""

    workload: Annotated[
        str, Option("Workload to run; see `tracekit workloads`.", metavar="NAME", compared=False)
    ]
    device: Annotated[
        str, Option("auto, cpu or cuda; auto uses a GPU if there is one.", choices=("auto", "cpu", "cuda"))
    ] = "auto"
    mode: Annotated[str, Option("Train, or infer.", metavar="[train|infer]")] = "train"
    level: Annotated[
        str, Option("Execution mode; libtorch is C++.", metavar="[eager|torchscript|compile|libtorch]")
    ] = "eager"
    backend: Annotated[
        str | None,
        Option("Backend of --level compile: inductor (default), aot_eager or any that torch lists."),
    ] = None
    size: Annotated[
        str,
        Option(
            "Preset for batch size, resolution and model; test is for a CPU.", metavar="[default|test|gpu]"
        ),
    ] = "default"
    dataset_shape: Annotated[
        str,
        Option(
            "Use shape, classes and batch size of a dataset; the data stays random.",
            metavar="[none|mnist|cifar10|stl10|pascal]",
        ),
    ] = "none"
    batch_size: Annotated[int | None, Option("Samples per step; default: the workload's.")] = None
    resolution: Annotated[
        int | None,
        Option("Image height and width, or tokens or points per sample; default: the workload's."),
    ] = None
    dtype: Annotated[str, Option("Precision.", metavar="[float32|float64|bfloat16|float16]")] = "float32"
    warmup: Annotated[
        int, Option("Warm-up steps; on a GPU more follow, for 1 s, unless 0.", least=0, compared=False)
    ] = 2
    threads: Annotated[int | None, Option("Intra-op CPU threads; default: torch's.", least=1)] = None
    zero_grad: Annotated[
        str,
        Option(
            "Clear gradients: set to None, fill each, or fill all in one call.",
            metavar="[default|zero|foreach]",
        ),
    ] = "default"
    pin_memory: Annotated[
        bool, Option("Use pinned host memory for batches; no effect without a GPU.", negatable=True)
    ] = False
    offload: Annotated[
        str, Option("Offload to host memory in each step: none, parameters or activations.")
    ] = "none"
    seed: Annotated[int, Option("Random seed of parameters and data.", compared=False)] = 0
    no_profile: Annotated[
        bool, Option("Time and sample a workload without profiling.", scope=Scope.PROFILER, compared=False)
    ] = False


WORKLOAD_FIELDS = tuple(option.name for option in list_options(WorkloadOptions) if option.compared)
"""Options of a workload that are fields of its fingerprint."""
