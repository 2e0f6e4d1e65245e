from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tracekit.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.runs.store import Store


@dataclass(frozen=True)
class Done:
    """What a command left: exit code, stdout and stderr."""

    code: int
    out: str
    err: str


@pytest.fixture
def tracekit(store: Store, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """Runs a command on the test's store, as the shell would."""

    def invoke(*arguments: str) -> Done:
        code = main.run([*arguments, "--store", str(store.path)])
        return Done(code, *capsys.readouterr())

    return invoke
