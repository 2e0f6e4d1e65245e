"""What the text of an NVTX range says: an op as `emit_nvtx` and `--pytorch` write it, or an annotation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tracekit.ingest import flops
from tracekit.ingest.kineto.names import host_kind
from tracekit.schema import C, HostKind
from tracekit.step_names import is_marker

if TYPE_CHECKING:
    from tracekit.ingest.nsys.strings import Strings
    from tracekit.ingest.nsys.tables import Chunk

_OP = (
    r"(?s)^(?P<name>.*?)(?:, seq = (?P<seq>\d{1,18}))?(?:, op_id = (?P<op>\d{1,18}))?"
    r"(?:, sizes = (?P<sizes>\[.*?\]))?(?:, input_op_ids = .*)?$"
)


def text(chunk: Chunk, strings: Strings) -> pa.Array:
    """The text of each range: its own, or the one it refers to."""
    referred = strings.of(chunk.integers("textId")).cast(pa.string())
    return pc.fill_null(pc.coalesce(chunk.texts("text"), referred), "")


def columns(texts: pa.Array) -> dict[str, pa.Array]:
    """Kind, name, ids and shapes of ranges.

    `aten::mm, seq = 5, op_id = 7, sizes = [[2, 3], [3, 4]]` is the op `aten::mm`; a text without these
    fields is an annotation, and so is what torch.profiler would call one.

    Example:
        >>> found = columns(pa.array(["aten::relu, op_id = 7, sizes = [[2, 3]]", "epoch 1"]))
        >>> [found[name].to_pylist() for name in ("kind", "name", "external_id", "input_shapes")]
        [['op', 'annotation'], ['aten::relu', 'epoch 1'], [7, None], ['[[2,3]]', None]]
    """
    distinct = texts.dictionary_encode()
    parts = pc.extract_regex(distinct.dictionary, _OP)
    found = {name: parts.field(name) for name in ("name", "seq", "op", "sizes")}
    found = {name: pc.if_else(pc.equal(part, ""), None, part) for name, part in found.items()}
    is_op = pc.or_(pc.is_valid(found["seq"]), pc.is_valid(found["op"]))
    name = pc.if_else(is_op, pc.fill_null(found["name"], ""), distinct.dictionary)
    shapes = pc.if_else(is_op, pc.replace_substring(found["sizes"], " ", ""), None)
    return {
        C.KIND: _spread(_kinds(name, is_op), distinct),
        C.NAME: _spread(name, distinct),
        C.INPUT_SHAPES: _spread(shapes, distinct),
        C.EXTERNAL_ID: _numbers(found["op"]).take(distinct.indices),
        C.SEQUENCE: _numbers(found["seq"]).take(distinct.indices),
        C.FLOPS: _flops(name, shapes).take(distinct.indices),
    }


def _kinds(names: pa.Array, is_op: pa.Array) -> pa.Array:
    """Ops, but for those that torch.profiler would call annotations."""
    once = names.dictionary_encode()
    kinds = pa.array([_kind(name) for name in once.dictionary.to_pylist()], pa.string())
    return pc.if_else(is_op, kinds.take(once.indices), str(HostKind.ANNOTATION))


def _kind(name: str) -> str:
    return str(HostKind.ANNOTATION if is_marker(name) else host_kind(HostKind.OP, name))


def _spread(values: pa.Array, distinct: pa.DictionaryArray) -> pa.DictionaryArray:
    """Values of the distinct texts, for each row."""
    once = values.dictionary_encode()
    return pa.DictionaryArray.from_arrays(once.indices.take(distinct.indices), once.dictionary)


def _numbers(values: pa.Array) -> pa.Array:
    return values.cast(pa.int64())


def _flops(names: pa.Array, shapes: pa.Array) -> pa.Array:
    """Work of the ops whose shapes tell it."""
    counted = pc.and_(pc.is_in(names, pa.array(sorted(flops.COUNTED))), pc.is_valid(shapes))
    if not pc.any(counted).as_py():
        return pa.nulls(len(names), pa.int64())
    rows = zip(counted.to_pylist(), names.to_pylist(), shapes.to_pylist(), strict=True)
    return pa.array(
        [flops.count(name, shape.encode(), b"") if asked else None for asked, name, shape in rows], pa.int64()
    )
