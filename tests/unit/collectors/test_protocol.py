"""What is said of a process that ended without a result: the line of its log that has the error."""

from __future__ import annotations

import io
import json
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tracekit.collectors.protocol import Reporter, follow, result_of, run_process, serve

from tests.fake_cuda import ADVICE, ILLEGAL
from tracekit.errors import CollectionError, UnusableInputError
from tracekit.recording.collector import Request, silent
from tracekit.recording.logs import LOG, error_line

if TYPE_CHECKING:
    from pathlib import Path

REQUEST = Request(workload="mnist_cnn", batch_size=1, resolution=28)
TRACEBACK = 'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\n    step()\n'
FRAMES = (
    "\nException raised from c10_cuda_check_implementation at /pytorch/c10/cuda/CUDAException.cpp:43 (most "
    "recent call first):\nframe #0: c10::Error::Error(c10::SourceLocation) + 0x96 (0x7f in libc10.so)\n"
    "frame #1: <unknown function> + 0x1 (0x7f in libtorch.so)\n"
)
ASSERT = "Indexing.cu:1289: operator(): block: [0,0,0], thread: [3,0,0] Assertion `index < size` failed.\n"
LOGS = {
    f"{TRACEBACK}torch.AcceleratorError: {ILLEGAL}{ADVICE}": f"torch.AcceleratorError: {ILLEGAL}",
    f"{TRACEBACK}torch.AcceleratorError: {ILLEGAL}\nSearch for `cudaErrorIllegalAddress' in "
    f"https://docs.nvidia.com/cuda/ for more information.{ADVICE}": f"torch.AcceleratorError: {ILLEGAL}",
    f"[rank1]: {TRACEBACK.replace(chr(10), chr(10) + '[rank1]: ')}RuntimeError: {ILLEGAL}{ADVICE}": (
        f"RuntimeError: {ILLEGAL}"
    ),
    f"{ASSERT * 3}{TRACEBACK}RuntimeError: CUDA error: device-side assert triggered{ADVICE}": (
        "RuntimeError: CUDA error: device-side assert triggered: Assertion `index < size` failed"
    ),
    f"{TRACEBACK}RuntimeError: {ILLEGAL}{ADVICE}\nterminate called after throwing an instance of "
    f"'c10::Error'\n  what():  {ILLEGAL}{ADVICE}{FRAMES}": f"RuntimeError: {ILLEGAL}",
    f"terminate called after throwing an instance of 'c10::Error'\n  what():  {ILLEGAL}{ADVICE}{FRAMES}": (
        ILLEGAL
    ),
    f"{ILLEGAL}{ADVICE}": ILLEGAL,
    f"{TRACEBACK}torch.distributed.DistBackendError: NCCL error, unhandled cuda error, NCCL version 2.27\n"
    "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 'invalid argument'\n": (
        "torch.distributed.DistBackendError: NCCL error, unhandled cuda error, NCCL version 2.27"
    ),
    f"{TRACEBACK}KeyError: 1\n\nDuring handling of the above exception, another exception occurred:\n\n"
    f"{TRACEBACK}ValueError: no step\nUSDT:2026 profiler_stop\n": "ValueError: no step",
    f"{TRACEBACK}RuntimeError:\n  {ILLEGAL}\n": f"RuntimeError: {ILLEGAL}",
    f"{TRACEBACK}KeyboardInterrupt\n": "KeyboardInterrupt",
    "W1125 08:00:00.1 x.cpp:1] careful\ncannot find libcudart.so\n": "cannot find libcudart.so",
    f"{ADVICE}": "no output",
}
"""Errors by log."""


@pytest.mark.parametrize("log", LOGS, ids=range(len(LOGS)))
def test_the_error_has_its_own_line(log: str) -> None:
    assert error_line(log) == LOGS[log]


def run(code: str, folder: Path) -> dict[str, Any]:
    return run_process((sys.executable, "-c", code), REQUEST, folder, silent)


def test_a_process_that_fails_with_a_cuda_error_says_which(tmp_path: Path) -> None:
    with pytest.raises(CollectionError) as raised:
        run(f"raise RuntimeError({ILLEGAL + ADVICE!r})", tmp_path)
    assert raised.value.message == f"mnist_cnn failed with exit code 1: RuntimeError: {ILLEGAL}"
    assert ADVICE.strip() in (tmp_path / LOG).read_text()


@pytest.mark.parametrize(
    ("log", "said"),
    [(f"  what():  {ILLEGAL}{ADVICE}", f"was killed by SIGABRT: {ILLEGAL}"), ("", "was killed by SIGABRT")],
)
def test_a_process_that_aborts_says_why(log: str, said: str) -> None:
    with pytest.raises(CollectionError) as raised:
        result_of(None, name="w", code=-signal.SIGABRT, log=log)
    assert raised.value.message == f"the process running w {said}"


def test_a_process_that_was_killed_may_have_run_out_of_memory() -> None:
    with pytest.raises(CollectionError, match="killed by SIGKILL") as raised:
        result_of(None, name="w", code=-signal.SIGKILL, log="")
    assert "--batch-size" in raised.value.hint


def test_the_cause_of_an_error_is_in_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    def record() -> dict[str, Any]:
        try:
            raise RuntimeError(f"{ILLEGAL}")
        except RuntimeError as error:
            raise CollectionError("w ran out of memory", hint="lower it") from error

    stream = io.StringIO()
    assert serve(Reporter(stream), record) == 5
    assert ILLEGAL in capsys.readouterr().err
    [event] = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert event == {
        "event": "error",
        "kind": "CollectionError",
        "message": "w ran out of memory",
        "hint": "lower it",
    }


def test_an_error_without_a_cause_says_nothing_more(capsys: pytest.CaptureFixture[str]) -> None:
    def record() -> dict[str, Any]:
        raise UnusableInputError("no GPU")

    assert serve(Reporter(io.StringIO()), record) == 2
    assert capsys.readouterr().err == ""


def test_an_unknown_kind_of_error_is_one_of_the_collection() -> None:
    final = follow(['{"event": "error", "kind": "Other", "message": "m", "hint": "h"}'], silent)
    with pytest.raises(CollectionError, match="m"):
        result_of(final, name="w", code=1, log="")
