"""`tracekit sweep` rejects options that would fail in every cell, without leaving files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tracekit.cli.main import run as tracekit

if TYPE_CHECKING:
    from tracekit.runs.store import Store


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--search-batch", "--batch-size", "4,8"], "starts from a single --batch-size"),
        (["--collector", "nope"], "unknown collector 'nope'"),
        (["--collector", "nsys", "--no-profile"], "--no-profile cannot be combined with --collector nsys"),
        (["--size", "huge"], "no size 'huge'"),
        (["--batch-size", "abc"], "cannot be 'abc'"),
    ],
)
def test_what_cannot_be_swept_is_refused(
    words: list[str], said: str, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tracekit(["sweep", "--workload", "mnist_cnn", *words, "--store", str(store.path)]) == 2
    assert said in capsys.readouterr().err
    assert not store.path.exists()
