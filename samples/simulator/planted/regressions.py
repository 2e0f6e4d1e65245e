"""Seven slowdowns that a nightly benchmark of PyTorch caught, as programs before and after the change.

Their figures are those of TorchBench (Hao et al., 2023), Table 5. What was changed is known from the pull
requests 61056, 71904, 72148 and 85447; of the others only the kind of cause is, and a change of that kind is
planted which makes a step as much slower as was reported. No model is rebuilt: one small program stands for
all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from samples.simulator.program import Program

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS = 6
TABLES = 4
"""Embedding tables, and so bounds checks of one step."""
CONV_NS, INDEX_NS, ADD_NS, LINEAR_NS, BAG_NS, BACKWARD_NS = 200_000, 15_000, 30_000, 60_000, 20_000, 70_000
CHECK_NS = 2_000
"""Each of the two kernels that check a distribution's argument."""
BATCH = 64
WORKSPACE_BYTES = 8_519_680
"""What cuBLAS keeps for a handle on a stream by default (`:4096:2:16:8`)."""
ACTIVATION_BYTES = 32 << 20


@dataclass(frozen=True, kw_only=True)
class Change:
    """What a program does; the defaults are the program before any change.

    Attributes:
        training: Whether there is a backward pass.
        conv_ns: Time of the convolution.
        add_ns: Time of the addition.
        add_kernel: Its kernel.
        linear_ns: Time of the linear layer.
        linear_kernel: Its kernel.
        checks: How often a distribution's argument is checked, each time to be read by the host.
        checked_ns: Time that the host needs between reading a check and its next launch.
        bag_check_ns: Time of the kernel that checks an embedding's indices before the host reads its verdict;
            without one None.
        error_check_ns: Time the host needs for the second check after each launch.
        kept_bytes: Memory of each step that is never freed.
        workspace_bytes: Memory that the first linear layer takes and keeps.
    """

    training: bool = True
    conv_ns: int = CONV_NS
    add_ns: int = ADD_NS
    add_kernel: str = "vectorized_elementwise_kernel<4, CUDAFunctor_add<float>, Array<char*, 3>>"
    linear_ns: int = LINEAR_NS
    linear_kernel: str = "volta_sgemm_128x64_tn"
    checks: int = 0
    checked_ns: int = 0
    bag_check_ns: int | None = None
    error_check_ns: int = 0
    kept_bytes: int = 0
    workspace_bytes: int = 0


@dataclass(frozen=True)
class Regression:
    """One change and what it did.

    Attributes:
        pull: Number of the pull request.
        ratio: Step time after over before, as reported.
        base: What ran before.
        head: What ran after.
    """

    pull: int
    ratio: float
    base: Change
    head: Change


def program(change: Change) -> Program:
    """The program of a change; all steps are alike.

    Example:
        >>> step_ns(program(Change()))
        462000
    """
    made = Program()
    for number in range(STEPS):
        with made.step():
            _step(made, change, allocated=change.kept_bytes + (0 if number else change.workspace_bytes))
            made.synchronize()
    return made


def step_ns(made: Program) -> int:
    """Mean length of the profiled steps."""
    lengths = [event.dur_ns for event in made.host if event.name.startswith("ProfilerStep#")]
    return round(sum(lengths) / len(lengths))


def _step(made: Program, change: Change, *, allocated: int) -> None:
    activation = made.allocate(ACTIVATION_BYTES)
    _op(made, change, "aten::conv2d", "aten::convolution", [BATCH, 3, 64, 64], "conv_sgemm", change.conv_ns)
    for _ in range(change.checks):
        _check(made, change)
    _op(made, change, "aten::index", None, [BATCH, 512], "index_elementwise_kernel<128, 4>", INDEX_NS)
    _op(made, change, "aten::add_", None, [BATCH, 512], change.add_kernel, change.add_ns)
    for table in range(TABLES):
        _bag(made, change, rows=1000 * (table + 1))
    shapes = [BATCH, 512]
    _op(made, change, "aten::linear", "aten::addmm", shapes, change.linear_kernel, change.linear_ns)
    if allocated:
        made.allocate(allocated)
    if change.training:
        _op(made, change, "AddmmBackward0", "aten::mm", shapes, "volta_sgemm_64x64_nt", BACKWARD_NS)
    made.allocate(-ACTIVATION_BYTES, address=activation)


def _op(
    made: Program, change: Change, outer: str, inner: str | None, shape: list[int], kernel: str, dur_ns: int
) -> None:
    with made.op(outer, shapes=[shape], dtypes=["float"]):
        if inner is None:
            _launch(made, change, kernel, dur_ns)
            return
        with made.op(inner, shapes=[shape], dtypes=["float"]):
            _launch(made, change, kernel, dur_ns)


def _launch(made: Program, change: Change, kernel: str, dur_ns: int) -> None:
    made.kernel(kernel, dur_ns)
    made.wait(change.error_check_ns)


def _check(made: Program, change: Change) -> None:
    """`if not constraint.check(value).all()`, as `torch.distributions` checks an argument."""
    greater = "vectorized_elementwise_kernel<4, CompareFunctor<float>, Array<char*, 3>>"
    _op(made, change, "aten::gt", None, [BATCH, 1], greater, CHECK_NS)
    _op(made, change, "aten::all", None, [BATCH, 1], "reduce_kernel<512, AndOps<bool>>", CHECK_NS)
    with made.op("aten::is_nonzero"), made.op("aten::item"), made.op("aten::_local_scalar_dense"):
        made.copy("D2H", 1)
    made.wait(change.checked_ns)


def _bag(made: Program, change: Change, *, rows: int) -> None:
    shapes = [[rows, 64], [BATCH]]
    with made.op("aten::embedding_bag", shapes=shapes, dtypes=["float", "long int"]):
        if change.bag_check_ns is not None:
            with made.op("aten::max", shapes=[[BATCH]], dtypes=["long int"]):
                _launch(made, change, "reduce_kernel<512, MaxOps<long>>", change.bag_check_ns)
            with made.op("aten::item", shapes=[[]]), made.op("aten::_local_scalar_dense", shapes=[[]]):
                made.copy("D2H", 8)
        with made.op("aten::_embedding_bag", shapes=shapes, dtypes=["float", "long int"]):
            _launch(made, change, "EmbeddingBag_updateOutputKernel_sum_mean<float, long>", BAG_NS)


def _longer(change: Change, ratio: float, then: Callable[[int], Change]) -> Change:
    """The change that adds to the device, and so to the step, what makes a step this much longer."""
    return then(round((ratio - 1) * step_ns(program(change))))


BEFORE, INFERENCE = Change(), Change(training=False)


def redundant_bound_checks() -> Regression:
    """Pull request 61056, +11% (soft_actor_critic): a distribution's argument was checked, then again.

    Both are read by the host, so the device runs dry twice, and idles until the host launches again.
    """
    once = replace(INFERENCE, checks=1, checked_ns=CHECKED_NS)
    return Regression(61056, 1.11, once, replace(once, checks=2))


def template_mismatch() -> Regression:
    """Pull request 65594, +21%: another template was instantiated, here one without vectors (its kind)."""
    name = "unrolled_elementwise_kernel<CUDAFunctor_add<float>, Array<char*, 3>, OffsetCalculator<2>>"
    slower = _longer(BEFORE, 1.21, lambda ns: replace(BEFORE, add_ns=ADD_NS + ns, add_kernel=name))
    return Regression(65594, 1.21, BEFORE, slower)


def other_library() -> Regression:
    """Pull request 72148, +7.8% (nvidia_deeprecommender): `aten::addmm` with a bias went to cuBLASLt."""
    name = "cublasLt::epilogue::impl::globalKernel<8, 32, float>"
    slower = _longer(BEFORE, 1.078, lambda ns: replace(BEFORE, linear_ns=LINEAR_NS + ns, linear_kernel=name))
    return Regression(72148, 1.078, BEFORE, slower)


def synchronizing_bound_checks() -> Regression:
    """Pull request 71904, +14.9% (dlrm): indices of EmbeddingBag checked on the host, once per table.

    The host has to read the largest index back, so it waits, and the device idles until the next launch.
    """
    return Regression(71904, 1.149, INFERENCE, replace(INFERENCE, bag_check_ns=BAG_CHECK_NS))


def library_configuration(*, training: bool) -> Regression:
    """Pull request 65839, 6.82× in training and 24.47× in inference: a library set up badly (its kind).

    Here a convolution's kernel is as much slower, and nothing else is changed.
    """
    base, ratio = (BEFORE, 6.82) if training else (INFERENCE, 24.47)
    slower = _longer(base, ratio, lambda ns: replace(base, conv_ns=CONV_NS + ns))
    return Regression(65839, ratio, base, slower)


def duplicated_error_check() -> Regression:
    """Pull request 87855, 10×: errors were checked twice, here by the host after each launch (its kind)."""
    return Regression(87855, 10.0, INFERENCE, replace(INFERENCE, error_check_ns=ERROR_CHECK_NS))


def kept_workspace() -> Regression:
    """Pull request 85447, memory only: cuBLAS's workspace came from the allocator and was never given back.

    It is as large as it was; from then on it counts as the program's, from the first step to the last.
    """
    return Regression(85447, 1.0, BEFORE, replace(BEFORE, workspace_bytes=WORKSPACE_BYTES))


def leaked_workspaces() -> Regression:
    """Its kind at its worst: a handle is made in every step, so that memory grows with the steps."""
    return Regression(85447, 1.0, BEFORE, replace(BEFORE, kept_bytes=WORKSPACE_BYTES))


CHECKED_NS = 29_583
BAG_CHECK_NS = 8_101
ERROR_CHECK_NS = 484_000

SLOWDOWNS: dict[str, Callable[[], Regression]] = {
    "61056": redundant_bound_checks,
    "65594": template_mismatch,
    "65839 in training": lambda: library_configuration(training=True),
    "65839 in inference": lambda: library_configuration(training=False),
    "71904": synchronizing_bound_checks,
    "72148": other_library,
    "87855": duplicated_error_check,
}
