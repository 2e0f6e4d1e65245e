"""Compilations, graph breaks and recompilations are counted by part."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tracekit.collectors import compilation
from tracekit.collectors.compilation import MAX_EXTRA_WARMUP, MIN_WARMUP, Compilations, describe_guard

from tracekit.runs.compilation import PROFILED, TIMED, Compilation, diagnostics, parse

torch = pytest.importorskip("torch")

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Broken(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
    """Two graphs, with a break between."""

    def forward(self, x: Any) -> Any:
        x = x.sin()
        torch._dynamo.graph_break()
        return x.cos()


class Whole(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
    """One graph."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        return self.linear(x)


def compiled(module: Any) -> Any:
    return torch.compile(module, backend="aot_eager")


def parsed(compilations: Compilations) -> Compilation:
    found = parse(compilations.facts([5, 3]))
    assert found is not None
    return found


def test_a_planted_graph_break_is_counted_with_its_reason() -> None:
    compilations = Compilations("compile")
    compiled(Broken())(torch.ones(2, 3))
    found = parsed(compilations)
    (own,) = found.breaks
    assert own.reason == "Call to `torch._dynamo.graph_break()`"
    assert (own.functions, own.frames, own.times) == (("forward",), 1, 1)
    assert "Developer" not in own.explanation
    assert "http" not in own.explanation
    assert (found.graphs, found.first_call_ns) == (2, 5)
    assert [one.ops for one in found.compilations] == [1, 1]
    assert all(one.dur_ns > 0 and one.guards and not one.reason for one in found.compilations)


def test_a_graph_break_that_is_compiled_twice_is_counted_twice() -> None:
    compilations = Compilations("compile")
    run = compiled(Broken())
    run(torch.ones(2, 3))
    run(torch.ones(4, 3))
    (own,) = parsed(compilations).breaks
    assert (own.frames, own.times) == (1, 2)


def test_a_recompilation_is_counted_with_its_guard_and_part() -> None:
    compilations = Compilations("compile")
    run = compiled(Whole())
    run(torch.ones(2, 3)).sum().backward()
    compilations.begin_part(TIMED)
    run(torch.ones(2, 3)).sum().backward()
    run(torch.ones(5, 3)).sum().backward()
    compilations.begin_part(PROFILED)
    found = parsed(compilations)
    assert found.breaks == ()
    (again,) = found.recompilations
    assert again.reason == "tensor 'x' size mismatch at index 0. expected 2, actual 5"
    assert again.part == TIMED
    assert {one.part for one in found.late} == {TIMED}
    (said,) = diagnostics(found)
    assert said.code == "compiled_in_timed_steps"
    assert "size mismatch" in said.message


def test_earlier_compilations_are_not_counted() -> None:
    compiled(Broken())(torch.ones(2, 3))
    found = parsed(Compilations("compile"))
    assert found == Compilation(first_call_ns=5, graphs=0, breaks=(), compilations=())


@pytest.mark.slow_except(1)
@pytest.mark.parametrize(
    ("sizes", "steps", "again"),
    [([2, 2, 2, 2], MIN_WARMUP, 0), ([2, 3, 3, 3], MIN_WARMUP, 1), ([2, 3, 4, 5, 5, 5], MIN_WARMUP + 2, 3)],
)
def test_warmup_continues_until_a_step_compiles_nothing(sizes: list[int], steps: int, again: int) -> None:
    # each new size is compiled: when torch compiles for any size is its own affair
    run = torch.compile(Whole(), backend="aot_eager", dynamic=False)
    compilations, done = Compilations("compile"), 0
    while not compilations.is_warm(done, 1):
        run(torch.ones(sizes[done], 3))
        done += 1
    assert done == steps
    assert len(parsed(compilations).recompilations) == again


def test_warmup_has_a_maximum() -> None:
    class Restless(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
        def forward(self, x: Any) -> Any:
            return x + 1

    compilations, done = Compilations("compile"), 0
    while not compilations.is_warm(done, 2):
        compiled(Restless())(torch.ones(2))
        torch._dynamo.reset()
        done += 1
    assert done == 2 + MAX_EXTRA_WARMUP


@pytest.mark.parametrize(("level", "asked", "steps"), [("eager", 0, 0), ("eager", 2, 2)])
def test_eager_warmup_has_the_requested_steps(level: str, asked: int, steps: int) -> None:
    compilations = Compilations(level)
    assert [compilations.is_warm(done, asked) for done in range(steps + 1)] == [False] * steps + [True]
    assert compilations.facts([]) is None


@pytest.mark.parametrize("asked", [0, 2, 5])
def test_torchscript_has_a_minimum_warmup(asked: int) -> None:
    compilations, done = Compilations("torchscript"), 0
    while not compilations.is_warm(done, asked):
        done += 1
    assert done == max(asked, MIN_WARMUP)


@pytest.mark.parametrize(
    ("metrics", "duration_ns"),
    [
        ({"duration_us": 7, "entire_frame_compile_time_s": 2.0}, 7_000),
        ({"entire_frame_compile_time_s": 0.25}, 250_000_000),  # torch 2.4
        ({"entire_frame_compile_time_s": None}, 0),
    ],
)
def test_the_duration_of_a_compilation_is_exact_to_a_microsecond(
    metrics: dict[str, Any], duration_ns: int
) -> None:
    assert compilation._duration_ns(SimpleNamespace(**metrics)) == duration_ns


def test_a_failed_guard_has_no_source_location() -> None:
    reason = "0/0: self.n == 1      # x * self.n  # /home/me/model.py:8 in forward (HINT: no)\n0/1: other"
    assert describe_guard(reason) == "self.n == 1"
    reason = "0/1: tensor 'x' size mismatch at index 0. expected 3, actual 5"
    assert describe_guard(reason) == "tensor 'x' size mismatch at index 0. expected 3, actual 5"


def test_without_an_id_of_torch_the_frame_and_its_compilations_are_one() -> None:
    assert compilation._id(SimpleNamespace(frame_key="3", cache_size=1)) == "3/1"


def test_a_graph_break_is_split_into_reason_and_explanation() -> None:
    text = "no print\n  Explanation: It prints.\n  Hint: Do not.\n  Developer debug context: "
    assert compilation._explain_break(text) == ("no print", "It prints. Do not.")
