"""The recipes of the proof kit ask for what tracekit offers."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

import samples.proof
from samples.proof.processes import NOT_APPLICABLE_CODE
from samples.proof.programs import overflow
from samples.proof.recipes import RECIPES, Recipe
from tracekit.cli.collect import command
from tracekit.recording.collect import decide
from tracekit.recording.collector import Request

PROGRAMS = Path(samples.proof.__file__).parent / "programs"
RECORDING = [one for one in RECIPES if "collect" in one.command]


@pytest.mark.parametrize("recipe", RECORDING, ids=lambda recipe: recipe.name)
def test_a_recipe_is_a_command_that_exists_and_never_falls_back_to_a_cpu(recipe: Recipe) -> None:
    words = list(recipe.command[recipe.command.index("collect") + 1 :])
    if "--" not in words and "--workload" not in words:  # the program adds it
        words += ["--workload", "vgg16", "--size", "gpu", "--batch-size", "999", "--steps", "1"]
    options = command.make_context("collect", words).params
    assert options["label"] == "{name}"
    if options["workload"]:
        request = Request(**{one.name: options[one.name] for one in fields(Request) if one.name in options})
        assert decide(request).device == "cuda"


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_the_program_of_a_recipe_exists(recipe: Recipe) -> None:
    named = [word.removeprefix("{programs}/") for word in recipe.command if word.startswith("{programs}")]
    assert all((PROGRAMS / name).is_file() for name in named)
    assert named or "--workload" in recipe.command


def test_names_are_unique_and_every_program_is_run() -> None:
    assert len({one.name for one in RECIPES}) == len(RECIPES)
    words = {word for one in RECIPES for word in one.command}
    written = {path.name for path in PROGRAMS.glob("*.py")} - {"__init__.py", "probe.py"}
    assert {name for name in written if f"{{programs}}/{name}" not in words} == set()


def test_the_code_for_not_applicable_is_one() -> None:
    assert overflow.NOT_APPLICABLE == NOT_APPLICABLE_CODE
