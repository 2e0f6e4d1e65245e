"""What a sweep measures, skips, and takes over; only the measurement itself is played."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.runs import make_run
from tests.unit.experiments.sweep.made import bad, cell, done, ok, plan
from tracekit.errors import CollectionError, RunNotFoundError, UnusableInputError
from tracekit.experiments import sweep, sweep_folder, sweep_model
from tracekit.experiments.sweep import finish
from tracekit.experiments.sweep_folder import find, list_sweeps
from tracekit.experiments.sweep_model import Cell, Outcome, Plan, Record
from tracekit.experiments.sweep_table import rows
from tracekit.runs.meta import Timings

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.runs.run import Run
    from tracekit.runs.store import Store

    Became = Callable[[Cell, int], Record]


def grid(*sizes: tuple[int, int], **settings: Any) -> tuple[Cell, ...]:
    return tuple(cell(resolution=side, batch_size=batch, **settings) for side, batch in sizes)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[[Became], list[tuple[int, int]]]:
    """Plays measurements; returns the sizes that were asked for, in order."""

    def play(became: Became) -> list[tuple[int, int]]:
        asked_for: list[tuple[int, int]] = []

        def measured(_: Store, __: Plan, settings: Any, *, repeat: int, **___: Any) -> Record:
            asked_for.append((settings.resolution, settings.batch_size))
            return became(cell(**vars(settings)), repeat)

        monkeypatch.setattr(sweep, "measure_cell", measured)
        monkeypatch.setattr(sweep, "why_impossible", lambda *_: "")
        return asked_for

    return play


def test_what_is_larger_than_what_ran_out_of_memory_is_skipped(store: Store, asked: Any) -> None:
    cells = grid((8, 1), (8, 2), (8, 4), (16, 1), (16, 2)) + grid((8, 2), mode="infer")
    large = Outcome.OUT_OF_MEMORY

    def became(of: Cell, repeat: int) -> Record:
        fits = of.settings.batch_size < 2 or of.settings.mode == "infer"
        return ok(of, 1, repeat=repeat) if fits else bad(of, large, repeat=repeat)

    seen = asked(became)
    place = sweep_folder.begin(store, plan(*cells, repeats=2))
    found = rows(place.plan, finish(store, place))
    assert seen == [(8, 1), (8, 1), (8, 2), (16, 1), (16, 1), (8, 2), (8, 2)]
    assert [row.outcome for row in found] == ["ok", large, "skipped", "ok", "skipped", "ok"]
    assert found[2].reason == "batch size 2 at resolution 8 ran out of memory"


@pytest.mark.parametrize(
    ("resolution", "batch_size", "skipped"), [(16, 4, True), (32, 2, True), (8, 4, False), (32, 1, False)]
)
def test_only_what_is_larger_in_no_size_tells_that_a_cell_cannot_fit(
    resolution: int, batch_size: int, skipped: bool
) -> None:
    (large,) = grid((16, 2))
    (other,) = grid((resolution, batch_size))
    records = done(bad(large, Outcome.OUT_OF_MEMORY))
    reason = sweep.too_large(other.settings, plan(large, other), records)
    assert reason == ("batch size 2 at resolution 16 ran out of memory" if skipped else "")


def test_a_failure_says_nothing_of_larger_sizes(store: Store, asked: Any) -> None:
    def became(of: Cell, repeat: int) -> Record:
        return bad(of, Outcome.FAILED, repeat=repeat) if of.settings.batch_size == 1 else ok(of, 1)

    seen = asked(became)
    place = sweep_folder.begin(store, plan(*grid((8, 1), (8, 2))))
    found = rows(place.plan, finish(store, place))
    assert seen == [(8, 1), (8, 2)]
    assert [row.outcome for row in found] == ["failed", "ok"]


def test_an_interrupted_sweep_goes_on_without_repeating(store: Store, asked: Any) -> None:
    cells = grid((8, 1), (8, 2), (8, 4))

    def stops(of: Cell, repeat: int) -> Record:
        if of.settings.batch_size == 4:
            raise KeyboardInterrupt
        return ok(of, 1, repeat=repeat)

    place = sweep_folder.begin(store, plan(*cells))
    asked(stops)
    with pytest.raises(KeyboardInterrupt):
        finish(store, place)
    seen = asked(lambda of, repeat: ok(of, 1, repeat=repeat))
    again = sweep_folder.begin(store, plan(*cells))
    assert again.id == place.id
    finish(store, again)
    assert seen == [(8, 4)]
    finish(store, again)
    assert seen == [(8, 4)]


def test_a_run_that_was_stored_but_not_noted_is_taken_over(store: Store, asked: Any) -> None:
    (one,) = grid((8, 1))
    place = sweep_folder.begin(store, plan(one))
    label = place.label(one.key, 0)
    run = make_run(store, label=label, workload={"device": "cpu"}, timings=Timings([5], [], "perf_counter"))
    seen = asked(lambda of, _: ok(of, 1))
    (row,) = rows(place.plan, finish(store, place))
    assert seen == []
    assert (row.run_id, row.step_ns) == (run.id, 5)


def test_a_damaged_record_is_measured_again(store: Store, asked: Any) -> None:
    (one,) = grid((8, 1))
    place = sweep_folder.begin(store, plan(one))
    seen = asked(lambda of, _: ok(of, 1))
    finish(store, place)
    place.record_file(one.key, 0).path.write_bytes(b'{"key"')
    finish(store, place)
    assert seen == [(8, 1), (8, 1)]


def test_another_process_at_the_same_sweep_is_refused(store: Store) -> None:
    place = sweep_folder.begin(store, plan(*grid((8, 1))))
    with (
        place.lock(),
        pytest.raises(UnusableInputError, match="another process"),
    ):
        finish(store, place)


def test_restart_forgets_and_another_plan_is_another_sweep(store: Store) -> None:
    one, two = grid((8, 1), (8, 2))
    place = sweep_folder.begin(store, plan(one))
    place.add(ok(one, 1))
    assert sweep_folder.begin(store, plan(one)).records()
    assert sweep_folder.begin(store, plan(one), restart=True).records() == {}
    assert sweep_folder.begin(store, plan(one, two)).id != place.id
    assert len(list_sweeps(store)) == 2


def test_sweeps_are_found_by_a_part_of_their_id(store: Store) -> None:
    place = sweep_folder.begin(store, plan(*grid((8, 1))))
    assert find(store, place.id[:6]).id == place.id
    assert find(store, "latest").id == place.id
    with pytest.raises(RunNotFoundError, match="no sweep named"):
        find(store, "nothing")
    with pytest.raises(RunNotFoundError, match="no suite in the store"):
        find(store, "latest", kind="suite")


OUT_OF_MEMORY = (
    "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    "RuntimeError: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    "RuntimeError: CUDA error: CUSPARSE_STATUS_ALLOC_FAILED when calling `cusparseCreate(handle)`",
    "torch._C._LinAlgError: cusolver error: CUSOLVER_STATUS_ALLOC_FAILED",
    "RuntimeError: cuFFT error: CUFFT_ALLOC_FAILED",
    "RuntimeError: CUDA error: HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate(handle)`",
    "RuntimeError: miopenStatusAllocFailed",
    "torch.AcceleratorError: CUDA error: out of memory",
    "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 20.00 GiB.",
    "RuntimeError: CUDA driver error: CUDA_ERROR_OUT_OF_MEMORY",
    "RuntimeError: Triton Error [CUDA]: out of memory",
    "RuntimeError: [enforce fail at alloc_cpu.cpp:128] DefaultCPUAllocator: can't allocate memory",
    "OSError: [Errno 12] Cannot allocate memory",
    "terminate called after throwing an instance of 'std::bad_alloc'",
)
OTHER_FAILURES = (
    "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
    "RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
    "RuntimeError: CUDA error: an illegal memory access was encountered",
    "OutOfResources: out of resource: shared memory, Required: 135168, Hardware limit: 101376.",
)


def test_failures_are_told_apart() -> None:
    def fails(message: str) -> Record:
        def collected() -> Run:
            raise CollectionError(message)

        return sweep.record_outcome("k", 0, collected)

    assert fails("w ran out of memory: CUDA out of memory.").outcome is Outcome.OUT_OF_MEMORY
    assert fails("the process running w was killed by SIGKILL").outcome is Outcome.OUT_OF_MEMORY
    for reason in OUT_OF_MEMORY:
        assert fails(f"w failed with exit code 1: {reason}").outcome is Outcome.OUT_OF_MEMORY, reason
    for reason in ("ValueError", *OTHER_FAILURES):
        assert fails(f"w failed with exit code 1: {reason}").outcome is Outcome.FAILED, reason
    refused = fails("w ran out of memory: x: you tried to allocate 4294967296 bytes. Error 12")
    assert refused.reason == "w ran out of memory: requested 4,294,967,296 bytes at once"


def test_a_fault_of_a_collector_is_a_row_and_a_full_disk_is_not() -> None:
    def broken() -> Run:
        raise KeyError("diagnostics")

    def full() -> Run:
        raise OSError(28, "No space left on device")

    record = sweep.record_outcome("k", 0, broken)
    assert (record.outcome, "KeyError" in record.reason) == (Outcome.FAILED, True)
    with pytest.raises(OSError, match="No space"):
        sweep.record_outcome("k", 0, full)


def test_only_what_has_no_values_is_retried(store: Store, asked: Any) -> None:
    cells = grid((8, 1), (8, 2))
    place = sweep_folder.begin(store, plan(*cells))
    place.add(ok(cells[0], 1))
    place.add(bad(cells[1], Outcome.FAILED))
    place.delete_failures()
    seen = asked(lambda of, _: ok(of, 1))
    finish(store, place)
    assert seen == [(8, 2)]


def test_time_left_is_what_the_others_took() -> None:
    cells = grid((8, 1), (8, 2), (8, 4))
    known = done(ok(cells[0], 1))
    described = "w train eager, resolution 8, batch 2"
    assert sweep._describe_place(plan(*cells), cells[1], known) == f"2 of 3: {described}, about 4 s left"
    assert sweep._describe_place(plan(*cells), cells[1], {}) == f"1 of 3: {described}"
    assert sweep._describe_place(plan(cells[0], search=True), cells[1], known) == f"2: {described}"


def rate(of: Cell, factor: float) -> Record:
    """A step so long that throughput is `factor` thousand samples a second."""
    return ok(of, round(of.settings.batch_size * 1e6 / factor))


def test_a_search_stops_where_throughput_no_longer_rises(store: Store, asked: Any) -> None:
    factors = {1: 1.0, 2: 1.5, 4: 1.8, 8: 1.82}
    (first,) = grid((8, 1))
    seen = asked(lambda of, _: rate(of, factors[of.settings.batch_size]))
    place = sweep_folder.begin(store, plan(first, search=True))
    known = finish(store, place)
    assert [batch for _, batch in seen] == [1, 2, 4, 8]
    found = sweep_model.BatchSearch(first, place.plan, known).result()
    assert found.best == 8
    assert "+1.1% at batch size 8" in found.why
    assert sweep_model.DOUBT not in found.why
    assert [row.settings.batch_size for row in rows(place.plan, known)] == [1, 2, 4, 8]


def test_a_search_that_noise_may_have_stopped_says_so(store: Store, asked: Any) -> None:
    (first,) = grid((8, 1))
    asked(lambda of, _: ok(of, 1000) if of.settings.batch_size == 1 else ok(of, 1500, 2100, 2700))
    place = sweep_folder.begin(store, plan(first, search=True))
    found = sweep_model.BatchSearch(first, place.plan, finish(store, place)).result()
    assert found.best == 1
    assert "-4.8% at batch size 2" in found.why
    assert found.why.endswith(sweep_model.DOUBT)


def test_a_search_stops_where_memory_ends(store: Store, asked: Any) -> None:
    (first,) = grid((8, 1))
    large = Outcome.OUT_OF_MEMORY
    asked(lambda of, _: bad(of, large) if of.settings.batch_size > 2 else rate(of, of.settings.batch_size))
    place = sweep_folder.begin(store, plan(first, search=True, repeats=2))
    found = sweep_model.BatchSearch(first, place.plan, finish(store, place)).result()
    assert (found.best, found.why) == (2, "batch size 4 ran out of memory")


def test_a_search_ends_at_the_largest_batch_allowed(store: Store, asked: Any) -> None:
    (first,) = grid((8, 1))
    asked(lambda of, _: rate(of, of.settings.batch_size))
    place = sweep_folder.begin(store, plan(first, search=True, most=4))
    found = sweep_model.BatchSearch(first, place.plan, finish(store, place)).result()
    assert (found.best, found.why) == (4, "batch size 4 is the largest allowed")
