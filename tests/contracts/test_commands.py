"""Every command that the product or a document names exists, with the options that it names."""

from __future__ import annotations

import ast
import gzip
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest
from click.core import ParameterSource
from click.testing import CliRunner

from samples.simulator.planted import idle
from tests.shared_runs import analyze, copy_of
from tracekit.analysis import available
from tracekit.analysis.findings import advise
from tracekit.cli.collect import _check_arguments, print_summary
from tracekit.cli.main import cli
from tracekit.recording.agent.agent import ProgramOptions
from tracekit.render.findings import render
from tracekit.runs.meta import Collector
from tracekit.workloads.options import list_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.shared_runs import SharedRuns
    from tracekit.runs.run import Run

ROOT = Path(__file__).parents[2]
PRODUCT = [
    file
    for folder in ("tracekit", "analyses", "collectors", "dashboards")
    for file in sorted((ROOT / folder).rglob("*.py"))
]
DOCUMENTS = [
    ROOT / "README.md",
    *(file for file in sorted((ROOT / "docs").rglob("*.md")) if file.name != "commands.md"),  # is generated
]
MENTION = re.compile(r"`(tracekit [^`]+)`")
LINE = re.compile(r"^ *(?:\$ )?(tracekit [a-z-]+(?: .*)?)$", re.MULTILINE)
"""A command on its line, as in help pages and examples."""
BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
SHELL = re.compile(r" (?:\||&&|;|>|2>) ")
VARYING = re.compile(r"^run .*$|\b\d+ rules checked", re.MULTILINE)
"""Ids of runs, and the number of rules, which every new one changes."""
FILLED = "VALUE"
"""Stands for what a program inserts into a text, and for the rest of a text in quotes."""


def texts(file: Path) -> Iterator[str]:
    """The texts of a module, with their inserted values replaced."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else FILLED for part in node.values)
            yield "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def commands(file: Path) -> Iterator[str]:
    """The commands that a module or a document names, without what follows them in a shell."""
    if file.suffix == ".md":
        text = file.read_text()
        places = [(LINE, "\n".join(BLOCK.findall(text))), (MENTION, BLOCK.sub("", text))]
    else:
        places = [(pattern, text) for text in texts(file) for pattern in (LINE, MENTION)]
    for pattern, text in places:
        for command in pattern.findall(text.replace("\\\n", " ")):
            yield SHELL.split(" ".join(command.split()) + " ")[0]


def words_of(command: str) -> list[str]:
    words = re.sub(r"""(["'])(?:(?!\1).)*(?:\1|$)""", FILLED, command)
    return [word for word in shlex.split(words, comments=True) if word not in ("...", "…")]


def parse(command: str) -> None:
    """Parse a command without running it.

    Raises:
        UsageError: The command or an option does not exist.
    """
    parsed: click.Command = cli
    context, rest = click.Context(cli), words_of(command)[1:]
    while isinstance(parsed, click.Group) and rest and not rest[0].startswith("-"):
        name, found, rest = parsed.resolve_command(context, rest)
        assert found is not None
        parsed, context = found, click.Context(found, info_name=name, parent=context)
    parser = parsed.make_parser(context)
    try:
        values, _, _ = parser.parse_args([*rest])
    except click.UsageError:
        if not rest or not rest[-1].startswith("--"):
            raise
        values, _, _ = parser.parse_args([*rest, FILLED])  # an option that is mentioned has no value
    if parsed.name == "collect":  # whose parser has a value that stands for none
        check_collect(context, {name: value for name, value in values.items() if isinstance(value, Given)})


Given = str | tuple | list | bool | int


def check_collect(context: click.Context, given: dict[str, Any]) -> None:
    """Refuse options of a workload and of a program together, as the command does once it runs."""
    for name in given:
        context.set_parameter_source(name, ParameterSource.COMMANDLINE)
    workload = given.get("workload")
    of_program = {option.name for option in list_options(ProgramOptions)} & set(given)
    program = tuple(given.get("program") or ("PROGRAM",) * bool(of_program and not workload))
    if program or workload:
        _check_arguments(context, program=program, workload=workload)


def broken(command: str) -> str:
    try:
        parse(command)
    except click.UsageError as error:
        return f"{command}: {error}"
    return ""


@pytest.mark.parametrize("files", [PRODUCT, DOCUMENTS], ids=["product", "documents"])
def test_commands_that_are_named_can_be_parsed(files: list[Path]) -> None:
    named = {command for file in files for command in commands(file)}
    assert {words_of(command)[1] for command in named} >= {"collect", "analyze", "findings", "diff"}
    assert [found for command in sorted(named) if (found := broken(command))] == []


@pytest.mark.parametrize(
    "command",
    [
        *("tracekit collect --stack -- a", "tracekit colect", "tracekit suite rn"),
        *(
            "tracekit collect --stacks --warmup 5 -- python prog.py",
            "tracekit collect --start-step 5 --warmup 5",
        ),
        "tracekit collect --workload resnet50 -- python prog.py",
    ],
)
def test_what_does_not_exist_is_found(command: str) -> None:
    assert broken(command)


OPTION = re.compile(r"(?<![\w-])--[a-z](?:[a-z-]*[a-z])?(?![\w-])")
OF_OTHERS = {
    *("--lock-gpu-clocks", "--reset-applications-clocks", "--reset-gpu-clocks"),  # nvidia-smi
    *("--capture-range", "--cuda-graph-trace", "--sample", "--trace", "--type"),  # nsys
    *("--init", "--recursive", "--unshallow"),  # git
    *("--enable-profile-cuda-graph", "--model-path", "--profiler-config"),  # servers
    "--cap-add",  # docker
}
"""Options of other programs that the product names."""


def known_options(command: click.Command = cli) -> set[str]:
    """The options of a command, and of those in it."""
    options = {"--help", "--version"}
    if isinstance(command, click.Group):
        context = click.Context(command)
        inner = (command.get_command(context, name) for name in command.list_commands(context))
        options.update(*(known_options(found) for found in inner if found))
    for parameter in command.params:
        options |= {*parameter.opts, *parameter.secondary_opts}
    return options


def printed_texts(file: Path) -> Iterator[str]:
    """The texts of a module that names options: those of more than one word that do not only document it."""
    source = file.read_text()
    if "--" not in source:
        return  # parsing takes long
    tree = ast.parse(source)
    documents = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and id(node) not in documents and " " in node.value:
            yield node.value


def test_options_that_the_product_names_exist() -> None:
    named = {option for file in PRODUCT for text in printed_texts(file) for option in OPTION.findall(text)}
    assert named >= {"--stacks", "--collector", "--steps"}
    assert sorted(named - known_options() - OF_OTHERS) == []


SAMPLES = ROOT / "samples"
OF_CLI = ROOT / "tracekit" / "cli" / "samples"


def from_nsys(path: Path, shared: SharedRuns) -> Run:
    export = path.with_suffix(".sqlite")
    export.write_bytes(gzip.decompress((SAMPLES / "nsys" / "mnist_cnn-train.sqlite.gz").read_bytes()))
    return shared.of(export)


def on_amd(path: Path, shared: SharedRuns) -> Run:
    run = shared.simulated(idle.small_ops())
    return copy_of(
        run, path, environment={**run.meta.environment, "gpus": [{"index": 0, "name": "AMD Instinct MI300X"}]}
    )


def collected_on_cpu(path: Path, shared: SharedRuns) -> Run:
    run = shared.of(SAMPLES / "recorded" / "mnist_cnn-train-cpu" / "trace.json.gz")
    return copy_of(run, path, collector=Collector("torch"))


KINDS: dict[str, Callable[[Path, SharedRuns], Run]] = {
    "collected on a CPU": collected_on_cpu,
    "imported": lambda _path, shared: shared.of(SAMPLES / "recorded" / "gpt-train-cuda" / "trace.json.gz"),
    "nsys": from_nsys,
    "ROCm": on_amd,
    "ranks": lambda _path, shared: shared.of(OF_CLI / "job"),
    "compiled": lambda _path, shared: shared.of(OF_CLI / "compiled" / "trace.json.gz"),
    "server": lambda _path, shared: shared.of(OF_CLI / "server.json.gz"),
    "kernels alone": lambda _path, shared: shared.of(SAMPLES / "bounds" / "gemm_fp32.json.gz"),
}
"""Runs of each kind."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.slow_except("collected on a CPU", "ROCm")
def test_commands_and_options_that_are_printed_of_a_run_exist(
    kind: str, tmp_path: Path, shared_runs: SharedRuns, capsys: pytest.CaptureFixture[str]
) -> None:
    run = KINDS[kind](tmp_path / "run", shared_runs)
    advice = advise(run, [one.name for one in available()], by=analyze)
    notes = [note for one in available() for note in analyze(run, one.name).notes]
    print_summary(run)
    summary = "".join(capsys.readouterr())
    texts = [summary, render(run.id, advice.findings, advice, "table"), *map(str, notes)]
    texts += [diagnostic.message for diagnostic in run.meta.diagnostics]
    flowing = [" ".join(text.split()) for text in texts]
    named = {command for text in flowing for command in MENTION.findall(text)}
    assert f"tracekit findings {run.id}" in named
    assert [problem for command in sorted(named) if (problem := broken(command))] == []
    options = {option for text in flowing for option in OPTION.findall(text)}
    assert sorted(options - known_options() - OF_OTHERS) == []


@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md"])
def test_examples_of_findings_are_printed_to_the_digit(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = (ROOT / page).read_text().split("$ tracekit findings ", 1)[1].split("```", 1)[0]
    command, _, example = shown.partition("\n")
    trace, *options = shlex.split(command)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(cli, ["sample", "loader", trace]).exit_code == 0
    result = CliRunner().invoke(cli, ["findings", trace, *options, "--store", str(tmp_path / "store")])
    expected, printed = (VARYING.sub("", text) for text in (example, result.stdout))
    assert printed.startswith(expected.removesuffix("...\n")), result.stdout
