"""Which rank and device number a sample of NVML belongs to, by the UUIDs that each rank saw."""

from __future__ import annotations

from typing import Any

import pytest
from tracekit.collectors.assignment import View, assign_samples, report_unsampled

from tracekit.ingest.write import Sample

A, B = "GPU-aaaaaaaa-0000-0000-0000-000000000000", "GPU-bbbbbbbb-0000-0000-0000-000000000000"
MIG = "MIG-cccccccc-1111-0000-0000-000000000000"
HOST = Sample(0, "process", None, "rss_bytes", "bytes", 1.0)


def sample(gpu: str, device: int) -> Sample:
    return Sample(0, "nvml", device, "power_w", "W", 1.0, gpu=gpu)


def view(rank: int, *uuids: str, used: tuple[int, ...] = ()) -> View:
    gpus = [{"index": index, "uuid": uuid, "sm_count": 132} for index, uuid in enumerate(uuids)]
    return View.of(rank, {"gpus": gpus}, [None, *used])


BOTH = [sample(A, 0), sample(B, 1)]


@pytest.mark.parametrize(
    ("views", "expected"),
    [
        # each rank chose its own device, which it calls 0
        ([view(0, A, used=(0,)), view(1, B, used=(0,))], [(A, 0, 0), (B, 1, 0)]),
        # a program set CUDA_VISIBLE_DEVICES=1 itself: the other GPU is not its own
        ([view(0, B, used=(0,))], [(B, 0, 0)]),
        # torch numbers the GPUs otherwise than NVML
        ([view(0, B, A, used=(0,))], [(A, 0, 1), (B, 0, 0)]),
        # both ranks see both GPUs, and each uses one
        ([view(0, A, B, used=(0,)), view(1, A, B, used=(1,))], [(A, 0, 0), (B, 1, 1)]),
        # which of them they use is unknown
        ([view(0, A, B), view(1, A, B)], [(A, None, 0), (B, None, 1)]),
        # two ranks share each GPU, and all call their own 0
        (
            [view(rank, gpu, used=(0,)) for rank, gpu in enumerate((A, A, B, B))],
            [(A, 0, 0), (A, 1, 0), (B, 2, 0), (B, 3, 0)],
        ),
        # no rank initialized CUDA
        (
            [View.of(0, {"gpus": [{"index": 0, "uuid": A, "sm_count": None}]}, [])],
            [(A, None, 0), (B, None, 1)],
        ),
        ([view(0, "GPU-elsewhere", used=(0,))], []),
    ],
)
def test_a_sample_belongs_to_the_rank_that_used_its_gpu(
    views: list[View], expected: list[tuple[Any, ...]]
) -> None:
    found = assign_samples([HOST, *BOTH], views)
    assert found[0] == HOST
    assert [(one.gpu, one.rank, one.device) for one in found[1:]] == expected


def test_an_instance_that_torch_names_by_its_gpu_keeps_its_number() -> None:
    kept = [sample(MIG, 0)]
    assert assign_samples(kept, [view(0, A, used=(0,))]) == kept
    assert report_unsampled(kept, [view(0, A, used=(0,))]) == []
    assert [one.rank for one in assign_samples(kept, [view(2, "GPU-" + MIG[4:], used=(0,))])] == [2]


def test_a_device_that_was_used_but_not_sampled_is_reported() -> None:
    [found] = report_unsampled([sample(A, 0)], [view(0, B, A, used=(0, 1)), view(1, A, used=(0,))])
    assert (found.code, found.level) == ("nvml_not_sampled", "info")
    assert found.message.startswith("NVML did not sample device 0 of rank 0: the program set CUDA_VISIBLE")
    assert report_unsampled([HOST], [view(0, B, used=(0,))]) == [], "there is no NVML"
    assert report_unsampled(BOTH, [view(0, A, B, used=(0,))]) == []
