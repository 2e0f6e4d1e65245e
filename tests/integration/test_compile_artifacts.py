"""A program that compiles, recorded for real: lines of its kernels, and kernels of other names."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tracekit.analyses.compile import kernels

from tracekit import analyze
from tracekit.diff import diff
from tracekit.errors import UnusableInputError
from tracekit.recording.collect import collect, collect_program
from tracekit.recording.collector import Program, Request
from tracekit.runs.store import Store
from tracekit.schema import SEPARATOR, C

if TYPE_CHECKING:
    from tracekit.runs.run import Run

pytest.importorskip("torch")

TRAIN = """\
import sys
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(64, 96), nn.LayerNorm(96), nn.Linear(96, 64)

    def forward(self, x):
        x = nn.functional.gelu(self.first(x))
        x = self.norm(x)
        x = x * torch.sigmoid(x)
        return self.last(x).softmax(-1)

torch.set_num_threads(1)
if "otherwise" in sys.argv:
    import torch._inductor.config
    torch._inductor.config.cpp.descriptive_names = "inductor_node"
    torch.compile(lambda x: (x.sin() + 1).relu())(torch.ones(5, 7))
model = Net()
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
batch = torch.randn(32, 64)
for _ in range(6):
    compiled(batch).pow(2).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
FORWARD = range(11, 15)


def recorded(folder: Path, *arguments: str) -> Run:
    script = folder / "train.py"
    script.write_text(TRAIN)
    command = (sys.executable, str(script), *arguments)
    program = Program(command=command, start_step=3, steps=2, compile_artifacts=True)
    return collect_program(Store(folder / "store"), program)[0]


@pytest.mark.slow
def test_compiled_kernels_have_lines_and_match_under_other_names(tmp_path: Path) -> None:
    base, head = recorded(tmp_path), recorded(tmp_path, "otherwise")
    for run in (base, head):
        share = kernels.share_with_lines(kernels.read_calls(run))
        assert share is not None
        assert share >= 0.95
        lines = analyze(run, "compile").tables["lines"]
        places = {line for text in lines[C.SOURCE_LINES] for line in text.split(SEPARATOR) if line}
        assert {Path(line.rpartition(":")[0]).name for line in places} == {"train.py"}
        assert {int(line.rpartition(":")[2]) for line in places} == set(FORWARD)
    names = [set(run.table("host_intervals", columns=[C.NAME])[C.NAME]) for run in (base, head)]
    generated = [{name for name in own if "cpp_fused" in name} for own in names]
    assert generated[0]
    assert generated[0].isdisjoint(generated[1])
    found = diff([base], [head])
    assert found.work is not None
    assert found.match is not None
    assert (found.work.terms.added, found.work.terms.removed, found.work.terms.count) == (0, 0, 0)
    assert {one.name for one in found.match.by_level} == {"hash"}


def test_a_level_that_compiles_nothing_is_refused(tmp_path: Path) -> None:
    request = Request(workload="mnist_cnn", compile_artifacts=True)
    with pytest.raises(UnusableInputError, match="does not apply to level eager"):
        collect(Store(tmp_path), request)
