"""Planted work: its FLOPs, bytes and rates are found exactly, and advice is given on it and only on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from samples.simulator.planted import roofline as planted
from tests.shared_runs import analyze
from tracekit.analysis import EVIDENCE_ROWS, Basis, Remark, Result, Severity
from tracekit.runs.devices import parse_device
from tracekit.schema import C

if TYPE_CHECKING:
    from collections.abc import Callable

    from samples.simulator import Program
    from tests.shared_runs import SharedRuns

PAIRS = {
    "unaligned_half_precision": (planted.unaligned_products, planted.aligned_products),
    "low_matrix_utilization": (planted.little_products, planted.batched_products),
    "slower_than_sibling": (planted.unequal_products, lambda: planted.unequal_products(large_ns=300_000)),
    "slower_than_equal": (planted.equal_products, lambda: planted.equal_products(slow_ns=80_000)),
}


def found(shared_runs: SharedRuns, program: Program) -> Result:
    return analyze(shared_runs.simulated(program), "roofline")


def row(result: Result, table: str, op: str) -> dict[str, Any]:
    frame = result.tables[table]
    (only,) = frame[frame["op"] == op].to_dict("records")
    return {str(key): value for key, value in only.items()}


@pytest.mark.parametrize("code", PAIRS)
def test_each_rule_fires_on_its_program_alone(code: str, shared_runs: SharedRuns) -> None:
    problem, clean = PAIRS[code]
    assert [finding.code for finding in found(shared_runs, problem()).findings] == [code]
    assert found(shared_runs, clean()).findings == ()


@pytest.mark.parametrize(
    ("analysis", "program"),
    [
        ("roofline", planted.convolutions),
        ("roofline", planted.tf32_products),
        ("kernels", planted.tf32_products),
    ],
)
def test_clean_programs_get_no_advice(
    analysis: str, program: Callable[[], Program], shared_runs: SharedRuns
) -> None:
    assert analyze(shared_runs.simulated(program()), analysis).findings == ()


def test_a_larger_product_could_run_at_the_rate_of_the_smaller_one(shared_runs: SharedRuns) -> None:
    (finding,) = found(shared_runs, planted.unequal_products()).findings
    assert finding.saving_ns_per_step == pytest.approx(420_000 - 4 * 75_000, rel=0.01)


def test_equal_products_could_all_run_the_faster_kernel(shared_runs: SharedRuns) -> None:
    (finding,) = found(shared_runs, planted.equal_products()).findings
    assert finding.saving_ns_per_step == 140_000 - 75_000
    assert "128x128_tn" in finding.advice


@pytest.mark.parametrize(
    ("options", "is_dense"),
    [({}, True), ({"count": 3}, False), ({"count": 5}, True), ({"rows": planted.SIZE // 4}, False)],
    ids=["dense", "other number of products", "more behind them", "rows by expert"],
)
def test_experts_that_compute_all_rows_are_told(
    options: dict[str, int], is_dense: bool, shared_runs: SharedRuns
) -> None:
    findings = found(shared_runs, planted.experts(**options)).findings
    dense = [finding for finding in findings if finding.code == "dense_experts"]
    assert len(dense) == is_dense
    for finding in dense:
        assert finding.saving_ns_per_step == 6 * 40_000  # three of four experts, of two products
        assert "All 4 experts" in finding.title


def test_fp32_products_are_held_against_fp32_and_advised_tf32_once(shared_runs: SharedRuns) -> None:
    run = shared_runs.simulated(planted.fp32_products())
    result = analyze(run, "roofline")
    got = row(result, "ops", "aten::mm")
    flops, moved = 6 * planted.PRODUCT_FLOPS, 6 * 3 * 2048 * 2048 * 4
    assert {
        key: got[key] for key in ("precision", "calls", "device_ns", C.FLOPS, C.BYTES, "peak_tflops")
    } == {
        "precision": "fp32",
        "calls": 6,
        "device_ns": 6_000_000,
        C.FLOPS: flops,
        C.BYTES: moved,
        "peak_tflops": 19.5,
    }
    assert got["roof_ns"] == round(flops / 19_500)
    assert got["bound"] == "compute"
    assert result.findings == ()
    (finding,) = analyze(run, "kernels").findings
    assert (finding.severity, finding.basis) == (Severity.HIGH, Basis.ESTIMATED)
    assert finding.saving_ns_per_step == pytest.approx(
        1_750_000, rel=0.01
    )  # 2 of 1 ms a step, 8 times as fast
    assert 'set_float32_matmul_precision("high")' in finding.advice
    assert "train.py(7): forward" in finding.advice
    rows = finding.evidence["device_intervals"]
    device = run.table("device_intervals").set_index(C.ROW_ID)
    assert len(rows) == min(6, EVIDENCE_ROWS)
    assert device.loc[rows, C.KIND].eq("kernel").all()


def test_kernels_are_rated_by_family_against_the_peak_of_their_precision(shared_runs: SharedRuns) -> None:
    (rated,) = found(shared_runs, planted.fp32_products()).tables["kernels"].to_dict("records")
    assert (rated["precision"], rated["calls"], rated["sum_ns"]) == ("fp32", 6, 6_000_000)
    assert rated["peak_share"] == pytest.approx(planted.PRODUCT_FLOPS / 19_500 / 1_000_000)
    assert rated["share"] == rated["family_share"]
    tf32 = found(shared_runs, planted.tf32_products()).tables["kernels"].iloc[0]
    assert tf32["precision"] == "tf32"
    # a name that does not tell FP32 from TF32, which this device has
    unclear = planted.products("cublas_gemm_kernel", 1_000_000, [[planted.SIZE] * 2] * 2, "float")
    assert "kernels" not in found(shared_runs, unclear).tables


def test_tf32_is_not_advised_for_products_too_small_to_gain(shared_runs: SharedRuns) -> None:
    kernel = "ampere_sgemm_32x32_sliced1x4_tn"
    program = planted.products(kernel, 8_000, [[64, 256], [256, 256]], "float", calls=20)
    codes = [finding.code for finding in found(shared_runs, program).findings]
    assert codes == ["low_matrix_utilization"]


def test_tf32_is_told_by_the_kernel(shared_runs: SharedRuns) -> None:
    got = row(found(shared_runs, planted.tf32_products()), "ops", "aten::mm")
    assert (got["precision"], got["peak_tflops"], got["bound"]) == ("tf32", 156, "compute")
    assert got["utilization"] == pytest.approx(round(6 * planted.PRODUCT_FLOPS / 156_000) / 900_000)


def test_model_flops_utilization_is_of_the_window(shared_runs: SharedRuns) -> None:
    result = found(shared_runs, planted.tf32_products())
    (whole,) = result.tables["summary"].to_dict("records")
    assert whole[C.FLOPS] == 6 * planted.PRODUCT_FLOPS
    assert whole["matrix_ns"] == 900_000
    assert whole["mfu"] == pytest.approx(6 * planted.PRODUCT_FLOPS / 156_000 / whole["window_ns"])
    assert whole["tflops"] == pytest.approx(6 * planted.PRODUCT_FLOPS / 1_000 / whole["window_ns"])
    assert whole["peaks"] == "tf32 156; 1555 GB/s"
    steps = result.tables["per_step"]
    assert steps[C.FLOPS].tolist() == [2 * planted.PRODUCT_FLOPS] * 3
    assert steps["matrix_ns"].tolist() == [300_000] * 3
    run = shared_runs.simulated(planted.tf32_products())
    windows = analyze(run, "gpu_breakdown").tables["per_step"]["window_ns"].tolist()
    assert steps["window_ns"].tolist() == windows
    assert steps["mfu"].tolist() == pytest.approx(
        [2 * planted.PRODUCT_FLOPS / 156_000 / window for window in windows]
    )


def test_unaligned_sizes_are_named(shared_runs: SharedRuns) -> None:
    (finding,) = found(shared_runs, planted.unaligned_products()).findings
    assert finding.advice.startswith("Pad 2047 in aten::mm [[2048,2047],[2047,2048]] to a multiple of 8")
    assert finding.saving_ns_per_step is None
    assert "at 18.3% of their roof" in finding.title


@pytest.mark.slow_except(1)
@pytest.mark.parametrize(
    ("kernel", "dur_ns"),
    [
        ("cutlass_80_wmma_tensorop_f16_s161616gemm_f16_128x128_32x2_tn_align1", 75_000),
        ("cutlass_80_wmma_tensorop_f16_s161616gemm_f16_128x128_32x2_tn_align8", 300_000),
    ],
)
def test_odd_sizes_are_not_blamed_without_evidence(kernel: str, dur_ns: int, shared_runs: SharedRuns) -> None:
    """Neither where the product is fast, nor where its kernel loads full vectors."""
    program = planted.products(kernel, dur_ns, planted.UNALIGNED, "c10::Half")
    codes = {finding.code for finding in found(shared_runs, program).findings}
    assert "unaligned_half_precision" not in codes


@pytest.mark.slow_except(1)
@pytest.mark.parametrize(
    "problem", [planted.fp32_products, planted.unaligned_products, planted.little_products]
)
def test_what_takes_little_of_a_step_is_not_worth_advice(
    problem: Callable[[], Program], shared_runs: SharedRuns
) -> None:
    program = problem()
    with program.step():
        program.kernel("elementwise", 700_000_000)
        program.synchronize()
    assert found(shared_runs, program).findings == ()


def test_little_products_are_said_to_be_little(shared_runs: SharedRuns) -> None:
    (finding,) = found(shared_runs, planted.little_products()).findings
    assert finding.severity is Severity.INFO
    assert finding.advice.startswith("A call has too little work")
    assert "8 µs on average, its work 126 ns" in finding.advice


def test_a_convolution_counts_once_and_owns_what_it_launched(shared_runs: SharedRuns) -> None:
    result = found(shared_runs, planted.convolutions())
    forward = 2 * (8 * 128 * 28 * 28) * (64 * 3 * 3)
    image, weight, output = 2 * 8 * 64 * 56 * 56, 2 * 128 * 64 * 9, 2 * 8 * 128 * 28 * 28
    columns = ["op", "calls", "device_ns", C.FLOPS, C.BYTES]
    expected = pd.DataFrame(
        [
            ("aten::convolution_backward", 3, 30_000, 6.0 * forward, 3 * (output + 2 * (image + weight))),
            ("aten::_convolution", 3, 15_000, 3.0 * forward, 3 * (image + weight + output)),
            ("aten::add_", 3, 15_000, None, 3 * 3 * output),
        ],
        columns=columns,
    )
    pd.testing.assert_frame_equal(result.tables["families"][columns], expected, check_dtype=False)
    (whole,) = result.tables["summary"].to_dict("records")
    assert whole[C.FLOPS] == 9 * forward
    assert whole["matrix_ns"] == 45_000
    assert whole["uncounted_ns"] == 0


def test_an_unlisted_device_has_rates_and_no_utilization(shared_runs: SharedRuns) -> None:
    program = planted.tf32_products()
    program.device_name = "Simulated GPU"
    result = found(shared_runs, program)
    got = row(result, "ops", "aten::mm")
    assert got["tflops"] == pytest.approx(planted.PRODUCT_FLOPS / 150_000 / 1_000)
    assert pd.isna(got["utilization"])
    assert pd.isna(got["roof_ns"])
    assert result.tables["summary"]["mfu"].isna().all()
    assert result.findings == ()
    assert "the peaks of 'Simulated GPU' are unknown" in result.notes[0]


def test_given_peaks_replace_those_of_the_device_and_are_named(shared_runs: SharedRuns) -> None:
    run = shared_runs.simulated(planted.fp32_products())
    other = run.with_peaks(parse_device("RTX A6000"))
    result = analyze(other, "roofline")
    got = row(result, "ops", "aten::mm")
    assert (got["peak_tflops"], got["peak_gb_per_s"]) == (38.7, 768)
    assert got["utilization"] == pytest.approx(round(6 * planted.PRODUCT_FLOPS / 38_700) / 6_000_000)
    (whole,) = result.tables["summary"].to_dict("records")
    assert whole["peaks"] == "fp32 38.7; 768 GB/s (given: RTX A6000)"
    (note,) = (note for note in result.notes if isinstance(note, Remark))
    assert note.startswith("peaks are those of RTX A6000 (NVIDIA Ampere GA102")
    assert note.endswith("as given, not those of the recorded NVIDIA A100-SXM4-40GB")
    (finding,) = analyze(other, "kernels").findings
    assert finding.how.endswith("with the peaks of RTX A6000, as given")
    assert analyze(other, "steps").notes == analyze(run, "steps").notes


@pytest.mark.slow
def test_given_peaks_serve_a_device_that_is_not_listed(shared_runs: SharedRuns) -> None:
    program = planted.tf32_products()
    program.device_name = "Simulated GPU"
    run = shared_runs.simulated(program).with_peaks(parse_device("A100 40 GB"))
    result = analyze(run, "roofline")
    listed = found(shared_runs, planted.tf32_products())
    assert result.tables["summary"]["mfu"].tolist() == listed.tables["summary"]["mfu"].tolist()
    assert not any("unknown" in note for note in result.notes)
    (device,) = analyze(run, "device_compare").tables["devices"].to_dict("records")
    assert (device["device_name"], device["tf32"]) == ("Simulated GPU", 156)


def test_another_number_of_units_has_no_listed_peaks(shared_runs: SharedRuns) -> None:
    program = planted.tf32_products()
    program.sm_count = 54
    result = found(shared_runs, program)
    assert result.tables["summary"]["mfu"].isna().all()
    assert "the peaks of 'NVIDIA A100-SXM4-40GB' are unknown" in result.notes[0]
