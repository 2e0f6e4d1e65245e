"""The sources speak one language: places and texts of rules, names, docstrings and parameters."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

import pytest

from tests.contracts.test_structure import sources
from tracekit.analysis import Rule, available

NUMBER = re.compile(r"(?<![\w{./-])\d[\d.,]*%?(?![\w}])")
"""A number by itself: not one in a name such as FP32, nor in a placeholder."""
MAX_PARAMETERS = 8
MORE_PARAMETERS = {"answer_page", "render_report"}
"""Functions that still take more."""
_WORDS = """
added advised affected allowed answered applied asked attached attributed blamed bounded built
called caught checked chosen combined compared computed configured connected counted covered cut
declared decided described done drawn dropped encoded escaped expected explained filled filtered
found given grouped guarded held joined judged kept known limited linked listed looked lost made
marked matched measured merged met named needed noted ordered paired parsed passed picked placed
prepared ranked recorded reduced refused removed rounded said seen settled shared shortened shown
signed sorted spent stated stored summed taken told treated trimmed tried unexpected unkeyed used
waited wanted weighted written
"""
PARTICIPLES = frozenset(_WORDS.split())
"""No function outside of another is named by one of these alone."""
RULES = [rule for analysis in available() for rule in analysis.rules]


@pytest.fixture(scope="module", autouse=True)
def _parse_sources() -> None:
    """Parse all sources before the first test, whose CPU time it would count as."""
    assert sources().trees


def calls(name: str) -> Iterator[tuple[str, ast.Call]]:
    """Calls of a function, class or method in the analyses, with the path of their file."""
    for path, tree in sources().trees.items():
        for node in ast.walk(tree) if path.startswith("analyses/") else ():
            if isinstance(node, ast.Call) and name in (getattr(node.func, key, "") for key in ("id", "attr")):
                yield path, node


def functions() -> Iterator[tuple[str, ast.FunctionDef]]:
    """Functions and methods that are not inside of other functions, with the path of their file."""
    for path, tree in sources().trees.items():
        holders = [tree, *(node for node in tree.body if isinstance(node, ast.ClassDef))]
        for holder in holders:
            yield from ((path, node) for node in holder.body if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("name", ["Rule", "Finding", "finding"])
def test_rules_and_findings_are_made_in_one_place_of_an_analysis(name: str) -> None:
    paths = {path for path, _ in calls(name)}
    assert paths
    assert {path for path in paths if path.count("/") > 1 and not path.endswith("/findings.py")} == set()


def literals(node: ast.AST) -> Iterator[str]:
    """Texts of an expression, without values that are interpolated."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif not isinstance(node, ast.FormattedValue):
        for child in ast.iter_child_nodes(node):
            yield from literals(child)


def test_no_number_is_written_out_in_what_a_rule_states() -> None:
    written = {}
    for path, call in calls("Rule"):
        stated = [*call.args[1:2], *(keyword.value for keyword in call.keywords if keyword.arg == "states")]
        if numbers := NUMBER.findall("".join(text for node in stated for text in literals(node))):
            written[f"{path}:{call.lineno}"] = numbers
    assert written == {}, "name it in `thresholds`, and write {name}"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_the_texts_of_a_rule_name_its_thresholds(rule: Rule) -> None:
    assert set(re.findall(r"\{(\w+)\}", rule.states + rule.why)) == set(rule.thresholds)
    assert "{" not in rule.condition + rule.reason


def test_no_module_has_the_first_line_of_another() -> None:
    modules = defaultdict(list)
    for path, tree in sources().trees.items():
        docstring = ast.get_docstring(tree)
        assert docstring, f"{path} has no docstring"
        modules[docstring.splitlines()[0]].append(path)
    assert [paths for paths in modules.values() if len(paths) > 1] == []


def test_functions_are_not_named_by_a_participle() -> None:
    named = [
        f"{path}:{function.lineno} {function.name}"
        for path, function in functions()
        if function.name in PARTICIPLES
        and not any("property" in ast.unparse(d) for d in function.decorator_list)
    ]
    assert named == [], "a function is a verb: describe, read_copies, with_verdicts"


def test_functions_outside_of_commands_take_few_parameters() -> None:
    wide = set()
    for path, function in functions():
        arguments = function.args
        count = len(arguments.posonlyargs) + len(arguments.args) + len(arguments.kwonlyargs)
        bound = [argument.arg for argument in arguments.args[:1] if argument.arg in {"self", "cls"}]
        if count - len(bound) > MAX_PARAMETERS and not path.startswith("tracekit/cli/"):
            wide.add(function.name)
    assert wide == MORE_PARAMETERS
