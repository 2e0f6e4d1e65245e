"""What a person writes for an axis, and the cells that come of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.errors import PluginError, UnusableInputError
from tracekit.experiments import sweep_grid


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("8", (8,)),
        ("8..1024*2", (8, 16, 32, 64, 128, 256, 512, 1024)),
        ("16..64+16", (16, 32, 48, 64)),
        ("8..100*3", (8, 24, 72)),
        ("64,8,64", (8, 64)),
        ("1, 4..16*2", (1, 4, 8, 16)),
    ],
)
def test_lists_and_ranges(text: str, wanted: tuple[int, ...]) -> None:
    assert sweep_grid.numbers(text, "--batch-size") == wanted


@pytest.mark.parametrize(
    "text", ["", "8,", "a", "8..4*2", "8..64", "8..64*1", "0..64*2", "8..64+0", "-1", "1..99999+1", "1e3"]
)
def test_what_is_no_list_is_refused_by_the_name_of_its_option(text: str) -> None:
    with pytest.raises(UnusableInputError, match="--batch-size"):
        sweep_grid.numbers(text, "--batch-size")


@given(st.sets(st.integers(1, 10**6), min_size=1, max_size=20))
def test_numbers_come_sorted_whatever_their_order(values: set[int]) -> None:
    assert sweep_grid.numbers(",".join(map(str, values)), "--x") == tuple(sorted(values))


def test_all_threads_and_switches() -> None:
    assert sweep_grid.threads("1,all,4") == (None, 1, 4)
    assert sweep_grid.switches("yes,no,yes", "--pin-memory") == (True, False)
    with pytest.raises(UnusableInputError, match="maybe"):
        sweep_grid.switches("maybe", "--pin-memory")


def test_cells_are_the_product_with_sizes_growing_last() -> None:
    axes = {"batch_size": (2, 4), "mode": ("train", "infer"), "resolution": (8, 16)}
    found = [one.settings for one in sweep_grid.cells("mnist_cnn", axes)]
    assert [(one.mode, one.resolution, one.batch_size) for one in found[:5]] == [
        ("train", 8, 2),
        ("train", 8, 4),
        ("train", 16, 2),
        ("train", 16, 4),
        ("infer", 8, 2),
    ]
    assert len(found) == 8
    assert len({one.key for one in found}) == 8


def test_a_backend_is_an_axis_of_what_is_compiled_alone() -> None:
    axes = {"level": ("eager", "compile"), "backend": ("aot_eager", "inductor")}
    found = [(one.settings.level, one.settings.backend) for one in sweep_grid.cells("mnist_cnn", axes)]
    assert found == [("eager", None), ("compile", "aot_eager"), ("compile", "inductor")]
    (plain,) = sweep_grid.cells("mnist_cnn", {"level": ("compile",)})
    assert plain.settings.backend == "inductor"
    with pytest.raises(UnusableInputError, match="use --level compile"):
        sweep_grid.cells("mnist_cnn", {"backend": ("aot_eager",)})


def test_what_is_not_given_is_as_the_workload_has_it() -> None:
    (cell,) = sweep_grid.cells("mnist_cnn", {})
    assert (cell.settings.batch_size, cell.settings.resolution) == (64, 28)
    (small,) = sweep_grid.cells("mnist_cnn", {}, size="test")
    assert small.settings.batch_size == 16


def test_an_unknown_workload_and_a_monstrous_grid_are_refused() -> None:
    with pytest.raises(PluginError):
        sweep_grid.cells("no_such", {})
    sizes = tuple(range(1, 1001))
    with pytest.raises(UnusableInputError, match="1,000,000 cells"):
        sweep_grid.cells("mnist_cnn", {"batch_size": sizes, "resolution": sizes})
