"""What torch.compile writes about its kernels: the lines, ops and sources that are read from it."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest

from tracekit.errors import UnusableInputError
from tracekit.ingest import artifacts
from tracekit.ingest.artifacts import Kernel, read

if TYPE_CHECKING:
    from pathlib import Path

LISTING = """\
class GraphModule(torch.nn.Module):
    def forward(self, primals_1: "f32[4]"):
        # File: model.py:9 in forward, code: return torch.mm(x, x).relu()
        mm: "f32[4]" = torch.ops.aten.mm.default(primals_1, primals_1)
        relu: "f32[4]" = torch.ops.aten.relu.default(mm);  mm = None
        # File: model.py:11 in forward, code: x.sin()
        sin: "f32[4]" = torch.ops.aten.sin.default(relu)
"""
COMMENT = "        # Topologically Sorted Source Nodes: [sin], Original ATen: [aten.sin]\n"


def code(name: str = "cpp_fused_relu_sin_0", *, graph: int = 0, body: str = "x", comment: str = "") -> str:
    return f"""\
{name} = async_compile.cpp_pybinding(['float*'], r'''
#include <torch/csrc/inductor/aoti_runtime/utils.h>
extern "C" void kernel(float* out)
{{
    torch::aot_inductor::RAIIAtenRecordFunctionHandle record_{name}_("graph_{graph}_{name}", nullptr);
    {body};
}}
''')

class Runner:
    def call(self, args):
        # [Provenance debug handles] extern_kernels.mm:1
        extern_kernels.mm(a, a, out=buf0)
{comment}        {name}(buf0)
        extern_kernels.mm(a, buf0, out=buf1)

def benchmark_compiled_module(args):
    extern_kernels.mm(a, a)
"""


def stack(*lines: int) -> list[str]:
    return [f'  File "model.py", line {line}, in forward\n    code\n' for line in lines]


STACKS = {
    "extern_kernels.mm:1": stack(9),
    "cpp_fused_relu_sin_0:2": stack(9, 11),
    "extern_kernels.mm:3": stack(12),
}
NODES = {"extern_kernels.mm:1": ["mm"], "cpp_fused_relu_sin_0:2": ["relu", "sin"]}


def record(payload: Any, **head: Any) -> str:
    text = payload if isinstance(payload, str) else json.dumps(payload)
    about = {"frame_id": 0, "frame_compile_id": 0, **head}
    lines = "".join(f"\t{line}\n" for line in text.splitlines())
    return f"V1125 03:07:48.198000 9370 torch/_x.py:2350] {json.dumps(about)}\n{lines}"


def artifact(name: str, payload: Any) -> str:
    return record(payload, artifact={"name": name})


def trace(*more: str, text: str | None = None, lines: str = LISTING) -> str:
    return "".join(
        [
            record(lines, dynamo_output_graph={}),
            artifact("inductor_post_grad_graph", LISTING),
            record(text or code(), inductor_output_code={"filename": "x.py"}),
            *more,
        ]
    )


def given(folder: Path, text: str, name: str = "dedicated_log_torch_trace_x.log") -> list[Kernel]:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    return read(folder)


FULL = (
    artifact("inductor_provenance_tracking_node_mappings", {"cppCodeToPost": NODES}),
    artifact("inductor_provenance_tracking_kernel_stack_traces", STACKS),
)
MISS = artifact("fx_graph_cache_miss", {"key": "fkey"})
HIT = artifact("fx_graph_cache_hit", {"key": "fkey"})


def test_each_call_of_a_graph_has_its_lines_and_ops(tmp_path: Path) -> None:
    first, fused, last = given(tmp_path, trace(*FULL, MISS))
    assert {one.graph for one in (first, fused, last)} == {"fkey"}
    assert (first.name, first.backend, first.lines, first.ops) == (
        *("aten::mm", "extern"),
        *(("model.py:9",), ("aten.mm",)),
    )
    assert (fused.name, fused.backend) == ("graph_0_cpp_fused_relu_sin_0", "cpp")
    assert (fused.lines, fused.ops) == (("model.py:9", "model.py:11"), ("aten.relu", "aten.sin"))
    assert (last.position, last.lines) == (2, ("model.py:12",))
    assert first.compile_id == "0/0"


def test_without_provenance_the_comments_and_listings_are_used(tmp_path: Path) -> None:
    first, fused, _ = given(tmp_path, trace(text=code(comment=COMMENT)))
    assert (fused.lines, fused.ops) == (("model.py:11",), ("aten.sin",))
    assert (first.lines, first.ops, first.graph) == ((), ("aten.mm",), "#0")


def test_the_source_decides_and_not_the_name(tmp_path: Path) -> None:
    (_, one, _), (_, renamed, _), (_, other, _) = (
        given(tmp_path / str(number), trace(text=text))
        for number, text in enumerate([code(), code("cpp_fused_sin_7", graph=3), code(body="y")])
    )
    assert one.source_hash == renamed.source_hash != other.source_hash
    assert one.name != renamed.name


def test_stack_traces_of_the_program_that_filled_the_cache_are_left_out(tmp_path: Path) -> None:
    own = LISTING.replace("forward", "f") + "        # File: model.py:12 in f, code: x\n        y = x.f(1)\n"
    assert given(tmp_path / "own", trace(*FULL, HIT, lines=own))[1].lines == ("model.py:9", "model.py:11")
    another = own.replace("model.py", "another.py")
    assert {one.lines for one in given(tmp_path / "another", trace(*FULL, HIT, lines=another))} == {()}


def test_graphs_that_several_ranks_compiled_count_once(tmp_path: Path) -> None:
    given(tmp_path, trace(*FULL, MISS), "a.log")
    (tmp_path / "b.log.gz").write_bytes(gzip.compress(trace(*FULL, HIT).encode()))
    assert len(read(tmp_path)) == 3


def test_the_folders_of_torch_compile_debug(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "model__0_forward_1.0"
    folder.mkdir(parents=True)
    (folder / "output_code.py").write_text(code())
    (folder / "fx_graph_transformed.py").write_text(LISTING)
    mapping = folder / "inductor_provenance_tracking_node_mappings.json"
    mapping.write_text(json.dumps({"cppCodeToPost": NODES}))
    assert [one.lines for one in read(tmp_path)] == [("model.py:9",), ("model.py:9", "model.py:11"), ()]


def test_kernels_without_lines_have_the_line_that_called_them(tmp_path: Path) -> None:
    frames = [("train.py", 7), ("/x/site-packages/torch/nn/modules/container.py", 253)]
    names = [record("", str=[file, number]) for number, (file, _) in enumerate(frames)]
    stack_ = [{"filename": number, "line": line} for number, (_, line) in enumerate(frames)]
    started = record("", dynamo_start={"stack": stack_})
    found = given(tmp_path, "".join([*names, started, trace(*FULL[:1], MISS)]).replace("# File", "#"))
    assert [one.lines for one in found] == [("train.py:7",)] * 3


def test_triton_kernels_have_the_hash_of_their_file(tmp_path: Path) -> None:
    text = (
        "# kernel path: /cache/up/cupjc.py\n# Source node to ATen node mapping:\n#   add => add\n"
        "triton_poi_fused_add_3 = async_compile.triton('triton_poi_fused_add_3', '''\nimport triton\n"
        "def triton_poi_fused_add_3(p): pass\n''', device_str='cuda')\n"
        "def call(args):\n    triton_poi_fused_add_3.run(a, 4, stream=s)\n"
    )
    (found,) = given(tmp_path / "a", trace(text=text))
    assert (found.name, found.backend, found.kernel_hash) == ("triton_poi_fused_add_3", "triton", "cupjc")
    (renamed,) = given(tmp_path / "b", trace(text=text.replace("add_3", "add_5")))
    assert renamed.source_hash == found.source_hash


@pytest.mark.parametrize("damage", ["", "nonsense\n", "V1125 03:07:48.1 1 x.py:1] {\n\tpayload\n"])
def test_what_holds_no_code_is_refused(tmp_path: Path, damage: str) -> None:
    with pytest.raises(UnusableInputError, match="no code generated by Inductor"):
        given(tmp_path, damage)


def test_records_of_other_types_are_left_out(tmp_path: Path) -> None:
    strange = [
        record("", str=[["x"], {}]),
        record("", dynamo_start={"stack": [{"filename": [], "line": None}, 7]}),
        record("", dynamo_start=[]),
        trace(),
        artifact("inductor_provenance_tracking_node_mappings", {"cppCodeToPost": [1]}),
        artifact("inductor_provenance_tracking_kernel_stack_traces", {"cpp_fused_relu_sin_0:2": [1, "x"]}),
        artifact("fx_graph_cache_hit", {"key": ["f"]}),
        record("[]", artifact=7),
    ]
    assert [one.lines for one in given(tmp_path, "".join(strange))] == [()] * 3


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnusableInputError, match="is no folder"):
        read(tmp_path / "absent")


def test_a_recording_in_which_nothing_was_compiled_has_no_kernels(tmp_path: Path) -> None:
    assert artifacts.read_recording(None) == artifacts.read_recording(tmp_path) == []


def test_names_of_calls_give_handles_ops_and_events() -> None:
    handles = artifacts._group_handles(["aten.mm:10", "aten.mm:2", "cpp_fused_0:3"])
    assert handles == {"aten.mm": ["aten.mm:2", "aten.mm:10"], "cpp_fused_0": ["cpp_fused_0:3"]}
    assert artifacts._ops_in_name("cpp_fused_gelu_mul_0") == ("gelu_mul",)
    assert artifacts._ops_in_name("extern_kernels.mm") == ("aten.mm",)
    assert artifacts._event_name("extern_kernels.addmm") == "aten::addmm"
    op = artifacts._event_name("torch.ops.mkldnn._linear_pointwise.default")
    assert op == "mkldnn::_linear_pointwise"


def test_lines_are_those_of_the_program_sorted_by_number() -> None:
    stack = 'File "train.py", line 3, in f; File "/lib/torch/nn/functional.py", line 9, in relu'
    assert artifacts._lines([stack, stack]) == ("train.py:3",)
    assert artifacts._sort_lines(["b.py:1", "a.py:10", "a.py:9"]) == ("a.py:9", "a.py:10", "b.py:1")


def test_the_hash_of_a_source_does_not_depend_on_its_generated_name() -> None:
    first = artifacts._source_hash('void cpp_f_0() {"graph_0_cpp_f_0"}', "cpp_f_0")
    assert first == artifacts._source_hash('void cpp_g_7() {"graph_2_cpp_g_7"}', "cpp_g_7")
