"""Which differences forbid a comparison, which are said, and which were declared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import host, make_run, step
from tracekit.diff import Options, diff
from tracekit.diff.engine import DECIDES, FIELDS, IMPLIED, expand_varying
from tracekit.diff.model import Status, Verdict
from tracekit.errors import UnusableInputError
from tracekit.runs.meta import fingerprint
from tracekit.schema import C, Phase

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.diff import Diff
    from tracekit.runs.run import Run

GPU = {"name": "GPU One", "sm_count": 100, "compute_capability": "9.0", "uuid": "GPU-1"}
WORKLOAD = {"name": "resnet50", "device": "cuda", "mode": "train", "batch_size": 8, "dtype": "float32"}
ENVIRONMENT = {"torch": "2.4.0", "driver": "550.1", "python": "3.11", "cpu": "a cpu", "gpus": [GPU]}


class RunMaker:
    def __init__(self, place: Path) -> None:
        self.place, self.made = place, 0

    def run(
        self, *, ops: list[dict[str, Any]] | None = None, marker: str = "ProfilerStep#1", **more: Any
    ) -> Run:
        self.made += 1
        workload = WORKLOAD | more.get("workload", {})
        environment = ENVIRONMENT | more.get("environment", {})
        flags = {"record_shapes": True} | more.get("flags", {})
        given = ops if ops is not None else [host("aten::mm", 0, 50, step=1)]
        return make_run(
            self.place / str(self.made),
            meta={
                "fingerprint": fingerprint(workload, environment, flags, collector="torch"),
                "environment": environment,
            },
            host_intervals=given,
            steps=[{**step(1, 0, 100), C.NAME: marker}],
        )

    def compared(self, base: Run, head: Run, *varying: str) -> Diff:
        return diff([base], [head], options=Options(varying=varying, explain=False))


@pytest.fixture
def maker(tmp_path: Path) -> RunMaker:
    return RunMaker(tmp_path)


def statuses(found: Diff) -> dict[str, str]:
    return {one.field: str(one.status) for one in found.comparability.differences}


def test_equal_fingerprints_are_comparable(maker: RunMaker) -> None:
    found = maker.compared(maker.run(), maker.run())
    assert (found.comparability.status, statuses(found)) == (Status.COMPARABLE, {})


@pytest.mark.slow_except(2)
@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("workload", {"workload": {"name": "unet"}}),
        ("mode", {"workload": {"mode": "infer"}}),
        ("batch_size", {"workload": {"batch_size": 16}}),
        ("dtype", {"workload": {"dtype": "bfloat16"}}),
        ("sm_count", {"environment": {"gpus": [{**GPU, "sm_count": 132}]}}),
        ("profiler_record_shapes", {"flags": {"record_shapes": False}}),
        ("step_marker", {"marker": "Iteration 1"}),
    ],
)
def test_what_decides_forbids_until_it_is_declared(
    maker: RunMaker, field: str, change: dict[str, Any]
) -> None:
    base, head = maker.run(), maker.run(**change)
    found = maker.compared(base, head)
    assert (found.verdict, statuses(found)) == (Verdict.NOT_COMPARABLE, {field: "not comparable"})
    allowed = maker.compared(base, head, field)
    assert (allowed.verdict, statuses(allowed)) == (Verdict.NONE, {field: "declared"})


@pytest.mark.slow_except(1)
@pytest.mark.parametrize("field", ["torch", "driver", "python", "cpu"])
def test_versions_and_hosts_are_said_and_compared(maker: RunMaker, field: str) -> None:
    found = maker.compared(maker.run(), maker.run(environment={field: "another"}))
    assert (found.verdict, statuses(found)) == (Verdict.NONE, {field: "warn"})


def test_what_one_side_does_not_say_is_no_difference(maker: RunMaker) -> None:
    found = maker.compared(maker.run(workload={"batch_size": None, "name": None}), maker.run())
    assert found.verdict is Verdict.NONE
    assert statuses(found) == {"workload": "unknown", "batch_size": "unknown"}
    assert found.comparability.status is Status.WARN


def test_another_gpu_of_one_model_is_said(maker: RunMaker) -> None:
    found = maker.compared(maker.run(), maker.run(environment={"gpus": [{**GPU, "uuid": "GPU-2"}]}))
    assert statuses(found) == {"gpu_uuid": "warn"}


def test_a_gpu_declared_to_vary_brings_what_follows_from_it(maker: RunMaker) -> None:
    other = {"gpus": [{"name": "Two", "sm_count": 1, "compute_capability": "1.0", "uuid": "x"}]}
    found = maker.compared(maker.run(), maker.run(environment=other), "gpu")
    assert set(statuses(found).values()) == {"declared"}
    assert found.comparability.status is Status.DECLARED


def test_steps_of_servers_are_alike_whatever_they_process(maker: RunMaker) -> None:
    markers = ("step[DECODE bs=4]", "execute_context_2(6144)_generation_3(3)")
    found = maker.compared(*(maker.run(marker=marker) for marker in markers))
    assert "step_marker" not in statuses(found)


def test_steps_marked_on_one_side_only_forbid_a_comparison(maker: RunMaker, tmp_path: Path) -> None:
    unmarked = make_run(tmp_path / "unmarked", host_intervals=[host("aten::mm", 0, 50)])
    found = maker.compared(maker.run(), unmarked)
    assert statuses(found)["step_marker"] == "not comparable"
    allowed = maker.compared(maker.run(), unmarked, "step_marker")
    assert allowed.compared is not None
    assert not allowed.compared.marked


def shaped(*ops: tuple[str, str]) -> list[dict[str, Any]]:
    return [
        host(name, 10 * place, 10 * place + 5, step=1, **{C.INPUT_SHAPES: shapes})
        for place, (name, shapes) in enumerate(ops)
    ]


def test_shapes_that_all_ops_have_otherwise_forbid_a_comparison(maker: RunMaker) -> None:
    small, large = shaped(("aten::mm", "[[8,4],[4,4]]")), shaped(("aten::mm", "[[16,4],[4,4]]"))
    assert statuses(maker.compared(maker.run(ops=small), maker.run(ops=large))) == {
        "shapes": "not comparable"
    }
    allowed = maker.compared(maker.run(ops=small), maker.run(ops=large), "batch_size")
    assert statuses(allowed) == {"shapes": "declared"}


def test_a_side_whose_runs_differ_in_shape_is_refused_with_the_reason(maker: RunMaker) -> None:
    small, large = shaped(("aten::mm", "[[8,4],[4,4]]")), shaped(("aten::mm", "[[16,4],[4,4]]"))
    mixed, head = [maker.run(ops=small), maker.run(ops=large)], [maker.run(ops=small)]
    found = diff(mixed, head)
    assert (found.verdict, found.metrics) == (Verdict.NOT_COMPARABLE, ())
    assert statuses(found) == {"shapes": "not comparable"}
    (reason,) = found.warnings
    assert reason.startswith("the runs of the base differ in shapes: aten::mm [[8,4],[4,4]] in ")
    declared = diff(mixed, head, options=Options(varying=("shapes",)))
    assert declared.verdict is not Verdict.NOT_COMPARABLE


def test_a_new_shape_beside_the_old_ones_and_new_ops_are_what_is_studied(maker: RunMaker) -> None:
    before = shaped(("aten::mm", "[[8,4]]"), ("aten::zero_", "[[4]]"))
    after = shaped(("aten::mm", "[[8,4]]"), ("aten::mm", "[[9,9]]"), ("aten::_foreach_zero_", "[[[4]]]"))
    assert statuses(maker.compared(maker.run(ops=before), maker.run(ops=after))) == {}


def test_shapes_of_few_ops_that_differ_are_said(maker: RunMaker) -> None:
    common = [(f"aten::op{number}", "[[8]]") for number in range(9)]
    before, after = shaped(*common, ("aten::mm", "[[1]]")), shaped(*common, ("aten::mm", "[[2]]"))
    found = maker.compared(maker.run(ops=before), maker.run(ops=after))
    assert statuses(found) == {"shapes": "warn"}
    (difference,) = found.comparability.differences
    assert (difference.base, difference.head) == ("aten::mm [[1]]", "aten::mm [[2]]")


def test_a_traced_dtype_speaks_where_the_workload_does_not(maker: RunMaker) -> None:
    def of(kind: str) -> Run:
        ops = [host("aten::mm", 0, 5, step=1, **{C.INPUT_DTYPES: f'["{kind}","long int"]'})]
        return maker.run(ops=ops, workload={"dtype": None})

    assert statuses(maker.compared(of("float"), of("c10::Half"))) == {"dtype": "not comparable"}
    assert statuses(maker.compared(of("float"), of("float"))) == {}


def test_a_change_inside_the_program_is_said_and_explains_other_inputs(maker: RunMaker) -> None:
    def of(kind: str, *names: str) -> Run:
        ops = [host("aten::mm", 0, 5, step=1, **{C.INPUT_DTYPES: f'["{kind}","long int"]'})]
        return maker.run(ops=ops, workload={"dtype": None, "change": list(names)})

    found = maker.compared(of("float"), of("c10::BFloat16", "bfloat16"))
    assert statuses(found) == {"change": "warn", "dtype": "declared"}
    (said,) = (one for one in found.comparability.differences if one.field == "change")
    assert (said.base, said.head) == ("(none)", "bfloat16")
    same = maker.compared(of("float", "foreach"), of("c10::BFloat16", "foreach"))
    assert statuses(same) == {"dtype": "not comparable"}


def test_a_backward_pass_tells_the_mode_where_the_workload_does_not(maker: RunMaker) -> None:
    def of(*phases: str | None) -> Run:
        ops = [host("aten::mm", 9 * n, 9 * n + 5, step=1, **{C.PHASE: p}) for n, p in enumerate(phases)]
        return maker.run(ops=ops, workload={"mode": None})

    found = maker.compared(of(None, str(Phase.BACKWARD)), of(None))
    assert statuses(found) == {"mode": "not comparable"}


def test_fields_are_known_by_name_and_imply_known_ones() -> None:
    assert set(DECIDES) < set(FIELDS)
    assert len(set(FIELDS)) == len(FIELDS)
    assert set(IMPLIED) <= set(FIELDS)
    assert {name for names in IMPLIED.values() for name in names} <= set(FIELDS)
    with pytest.raises(UnusableInputError, match="moon"):
        expand_varying(["gpu", "moon"])
    assert sorted(expand_varying(["batch_size"])) == ["batch_size", "shapes"]
