r"""Read what `torch.compile` writes about its kernels: source lines, fused ops and source code.

A folder is one of `TORCH_TRACE` (logs of JSON records, plain or gzipped, each with its payload on the
indented lines after it) or of `TORCH_COMPILE_DEBUG` (a folder per graph), or holds both. The most that it
says is used:

* Each kernel call of the generated code has a number if `INDUCTOR_PROVENANCE=1` was set. Records of a log
  give the stack traces and the nodes of each number. Without them, the comments of the generated code name
  nodes, and the listings of the graphs name the lines of nodes.
* The key of a graph in Inductor's cache identifies its calls in a profile: `## Call CompiledFxGraph KEY ##`.
* A graph from Inductor's cache comes with the stack traces of the program that compiled it, which may be
  another one. They count only if Dynamo's own listing, which is always of this program, has all their lines.
* Kernels without lines, as of modules that only torch's code makes up, have the line that called the compiled
  code, or the function that was compiled.
* The hash of a source does not depend on the generated names in it, unlike Inductor's own `kernel_hash`.

Example:
    >>> kernels = read(Path("torch_trace"))  # doctest: +SKIP
    >>> kernels[0].name, kernels[0].lines  # doctest: +SKIP
    ('graph_0_cpp_fused_gelu_0', ('model.py:9',))
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import structs

from tracekit.errors import UnusableInputError
from tracekit.ingest.write import write_table
from tracekit.runs import redaction
from tracekit.runs.kernel_sources import kernel_label
from tracekit.schema import COMPILED_KERNELS, SEPARATOR, C

_TRACE_FILES, _CODE_FILE = "*.log*", "output_code.py"
_RECORD = re.compile(r"[VIWEF]\d{4} [\d:.]+ \d+ \S+\] (\{.*\})$")
_STACKS = "inductor_provenance_tracking_kernel_stack_traces"
_NODES = "inductor_provenance_tracking_node_mappings"
_DYNAMO = "dynamo_output_graph"
_LISTINGS = ("aot_forward_graph", "aot_inference_graph", "aot_backward_graph")
_POST_GRAD = "inductor_post_grad_graph"
_CODE = "inductor_output_code"
_CACHE, _HIT = "fx_graph_cache_", "fx_graph_cache_hit"
_FILE = re.compile(r"# File: (?P<file>.+?):(?P<line>\d{1,9}) in ")
_NODE = re.compile(r"(\w+)(?:: \"[^\"]*\")? = ([\w.]+)[(\[]")
_FRAME = re.compile(r'File "([^"]+)", line (\d{1,9})\b')
_LIBRARY = re.compile(r"(?:site|dist)-packages[/\\]torch[/\\]|[/\\]torch[/\\](?:nn|optim|utils|_\w+)[/\\]")
_DEFINED = re.compile(r"^(\w+) = async_compile\.(\w+)\((.*?)r?('''|\"\"\")(.*?)\4", re.DOTALL | re.M)
_PATH = re.compile(r"^# kernel path: \S*?([^/\\\s]+)\.py$(?:\n#.*)*\n(\w+) = async_compile", re.M)
_CALL = re.compile(
    r"\s+(?:\w+ = )?((?:cpp_fused|triton_)\w*|(?:extern_kernels|aten|torch\.ops)\.[\w.]+)(?:\.run)?\("
)
_COMMENT = re.compile(r"# Topologically Sorted Source Nodes: \[(.*?)\], Original ATen: \[(.*?)\]")
_RECORDED = re.compile(r'RecordFunctionHandle \w+\("([^"]+)"')
_PROFILED = re.compile(r"^.*(?:RecordFunctionHandle |aoti_runtime/utils\.h).*\n", re.M)
"""Lines of a C++ source that are there only if its calls are recorded in a profile."""
_FUSED = re.compile(r"^(?:cpp|triton_\w{3})_fused_(.*?)_\d+$")

SETTINGS = {"INDUCTOR_PROVENANCE": "1", "TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE": "1"}
"""Environment variables with which torch.compile writes all that is read here, to `TORCH_TRACE`."""
_HINT = f"record with TORCH_TRACE=DIR {' '.join(f'{name}={value}' for name, value in SETTINGS.items())}"


class Kernel(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a kernel in the code that Inductor generated for a graph."""

    graph: str  # key of the graph in Inductor's cache; without one, a number within the folder
    position: int  # number of the call in the code of the graph
    name: str  # name of its event in a profile
    backend: str  # `cpp`, `triton`, or `extern` for an op of ATen or of a library
    compile_id: str | None = None  # torch's `i/j` of the compilation; None if unknown
    kernel_hash: str | None = None  # inductor's hash of the source, if the code contains it
    source_hash: str | None = None  # hash of the source without generated names; None for `extern`
    lines: tuple[str, ...] = ()  # lines of the program that it computes, as `file:line`
    ops: tuple[str, ...] = ()  # ops that were fused into it


class _Graph(msgspec.Struct):
    """What is known of one compiled graph."""

    code: str
    listings: list[str]
    compile_id: str | None = None
    key: str | None = None
    own_lines: frozenset[str] = frozenset()
    called_at: tuple[str, ...] = ()
    stacks: dict[str, list[str]] = {}
    nodes: dict[str, list[str]] = {}

    @property
    def is_own(self) -> bool:
        """Whether all its stack traces end in lines of Dynamo's listing."""
        stacks = [_FRAME.findall(stack) for group in self.stacks.values() for stack in group]
        return {":".join(frames[-1]) for frames in stacks if frames} <= self.own_lines


def read(folder: Path) -> list[Kernel]:
    """Return the kernels of all graphs of a folder, at least one.

    Raises:
        UnusableInputError: The folder cannot be read, or holds no code generated by Inductor.
    """
    kernels = _read(folder)
    if not kernels:
        raise UnusableInputError(f"{folder} holds no code generated by Inductor", hint=_HINT)
    return kernels


def _read(folder: Path) -> list[Kernel]:
    """Return the kernels of all graphs; ranks that compiled the same graph count once."""
    if not folder.is_dir():
        message = f"{folder} is no folder"
        raise UnusableInputError(message, hint="give the folder of TORCH_TRACE or of TORCH_COMPILE_DEBUG")
    try:
        logs = sorted(folder.rglob(_TRACE_FILES))
        graphs = [graph for log in logs for graph in _Log(log).graphs] + [*_graphs_of_debug(folder)]
    except OSError as error:
        message = f"{folder} cannot be read: {error.strerror}"
        raise UnusableInputError(message, hint="check the permissions of its files") from error
    return _distinct_kernels(graphs)


def read_recording(folder: Path | None) -> list[Kernel]:
    """Return the kernels in the folder of a recording; none if nothing was compiled."""
    return _read(folder) if folder is not None and any(folder.rglob(_TRACE_FILES)) else []


def _distinct_kernels(graphs: Sequence[_Graph]) -> list[Kernel]:
    """Return the kernels of graphs of which no earlier one has the same key or the same code."""
    kernels: list[Kernel] = []
    known_codes: set[str] = set()
    for number, graph in enumerate(graphs):
        code = hashlib.sha256(graph.code.strip().encode()).hexdigest()
        if known_codes.isdisjoint({code, graph.key or code}):
            kernels += _kernels(graph, graph.key or kernel_label(number))
        known_codes |= {code, graph.key or code}
    return kernels


class _Log:
    """Reads a log: what is known of a compilation comes before the code of its graph, all else after it."""

    def __init__(self, path: Path) -> None:
        self.graphs: list[_Graph] = []
        self._files: dict[int, str] = {}
        self._compilations: dict[str, _Graph] = {}
        self._latest: dict[str, _Graph] = {}
        for record, payload in records(path):
            self._add(record, payload)

    def _add(self, record: dict[str, Any], payload: str) -> None:
        """Add a record; unknown ones are ignored."""
        compile_id = f"{record.get('frame_id')}/{record.get('frame_compile_id')}"
        artifact = record.get("artifact")
        name = str(artifact.get("name")) if isinstance(artifact, dict) else ""
        begun = self._compilations.setdefault(compile_id, _Graph(code="", listings=[]))
        if _CODE in record:
            known_id = compile_id if record.get("frame_id") is not None else None
            graph = structs.replace(begun, code=payload, listings=[*begun.listings], compile_id=known_id)
            self._latest[compile_id] = graph
            self.graphs.append(graph)
        elif "str" in record:  # the number by which later records name a file
            match record["str"]:
                case [str(file), int(number)]:
                    self._files[number] = file
        elif "dynamo_start" in record:
            begun.called_at = _find_caller(record["dynamo_start"], self._files)
        elif _DYNAMO in record:
            begun.listings, begun.own_lines = [payload], frozenset(_nodes([payload])[0].values())
        elif name == _POST_GRAD or not record.keys().isdisjoint((_POST_GRAD, *_LISTINGS)):
            begun.listings.append(payload)
        elif current := self._latest.get(compile_id):
            _complete(current, name, payload)


def _complete(graph: _Graph, name: str, payload: str) -> None:
    """Add an artifact that follows the code of its graph."""
    if name.startswith(_CACHE):
        graph.key = graph.key or str(_object(payload).get("key") or "") or None
        if name == _HIT and not graph.is_own:
            graph.stacks, graph.listings = {}, []
    elif name == _STACKS:
        graph.stacks = _lists(_object(payload))
    elif name == _NODES:
        graph.nodes = _lists(_object(payload).get("cppCodeToPost"))


def _find_caller(start: Any, files: Mapping[int, str]) -> tuple[str, ...]:
    """Return the innermost line outside of torch of the stack of a compilation."""
    stack = start.get("stack") if isinstance(start, dict) else None
    lines: list[str] = []
    for frame in stack if isinstance(stack, list) else ():
        match frame:
            case {"filename": int(number), "line": int(line)} if number in files:
                lines += [] if _LIBRARY.search(files[number]) else [f"{files[number]}:{line}"]
    return tuple(lines[-1:])


def records(path: Path) -> Iterator[tuple[dict[str, Any], str]]:
    """Return the records of a log with their payloads; damaged ones are skipped."""
    record: dict[str, Any] | None = None
    payload: list[str] = []
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.startswith("\t"):
                if record is not None:
                    payload.append(line[1:])
            elif start := _RECORD.match(line):
                if record is not None:
                    yield record, "".join(payload)
                record, payload = _object(start[1]), []
    if record is not None:
        yield record, "".join(payload)


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _lists(value: Any) -> dict[str, list[str]]:
    """Return the lists of texts of an object; none if it holds anything else."""
    try:
        return msgspec.convert(value, dict[str, list[str]])
    except msgspec.ValidationError:
        return {}


def _graphs_of_debug(folder: Path) -> Iterator[_Graph]:
    for path in sorted(folder.rglob(_CODE_FILE)):
        files = (path.with_name(name) for name in ("fx_graph_readable.py", "fx_graph_transformed.py"))
        listings = [text for text in map(_text, files) if text]
        nodes = _lists(_object(_text(path.with_name(f"{_NODES}.json"))).get("cppCodeToPost"))
        stacks = _lists(_object(_text(path.with_name(f"{_STACKS}.json"))))
        yield _Graph(code=_text(path), listings=listings, nodes=nodes, stacks=stacks)


def _text(path: Path) -> str:
    return path.read_text("utf-8", "replace") if path.is_file() else ""


def _kernels(graph: _Graph, key: str) -> Iterator[Kernel]:
    """Return the kernels that the code of a graph calls, in order."""
    sources = {match[1]: (match[2], match[3] + match[5]) for match in _DEFINED.finditer(graph.code)}
    hashes = {name: stem for stem, name in _PATH.findall(graph.code)}
    line_of, op_of = _nodes(graph.listings)
    numbered = _group_handles([*graph.stacks, *graph.nodes])
    count: Counter[str] = Counter()
    for position, (name, near, original) in enumerate(_calls(graph.code)):
        handle = next(iter(numbered.get(name, [])[count[name] :]), "")
        count[name] += 1
        nodes = graph.nodes.get(handle, [])
        backend, source = sources.get(name, ("extern", ""))
        event = _RECORDED.search(source)
        yield Kernel(
            graph=key,
            position=position,
            name=event[1] if event else _event_name(name),
            backend="cpp" if backend.startswith("cpp") else backend,
            compile_id=graph.compile_id,
            kernel_hash=hashes.get(name),
            source_hash=_source_hash(source, name) if source else None,
            lines=_sort_lines(
                _lines(graph.stacks.get(handle, []))
                or _unique(line_of.get(node) for node in (*nodes, *near))
                or graph.called_at
            ),
            ops=_unique(op_of.get(node) for node in nodes) or original or _ops_in_name(name),
        )


def _group_handles(handles: Iterable[str]) -> dict[str, list[str]]:
    """Return the handles `name:number` of each name, in order of their numbers: `mm:2` before `mm:10`."""
    numbers_by_name: dict[str, set[int]] = defaultdict(set)
    for handle in handles:
        name, _, number = handle.rpartition(":")
        if number.isdigit():
            numbers_by_name[name].add(int(number))
    return {
        name: [f"{name}:{number}" for number in sorted(numbers)] for name, numbers in numbers_by_name.items()
    }


def _calls(code: str) -> Iterator[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    """Return the calls of kernels in generated code: name, nodes and ops of the comment before the call."""
    near: tuple[str, ...] = ()
    original: tuple[str, ...] = ()
    _, _, body = code.partition("def call(")
    for line in body.splitlines():
        if line.startswith("def benchmark_compiled_module"):
            return
        if comment := _COMMENT.search(line):
            near, original = (tuple(filter(None, part.split(", "))) for part in comment.groups())
        elif call := _CALL.match(line):
            yield call[1], near, original
            near = original = ()


def _nodes(listings: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the line and the op of each node in the listings of graphs; later listings count."""
    lines, ops = {}, {}
    for listing in listings:
        where = ""
        for line in listing.splitlines():
            if file := _FILE.search(line):
                where = f"{file['file']}:{file['line']}"
            elif node := _NODE.match(line.strip()):
                if where:
                    lines[node[1]] = where
                if node[2].startswith("torch.ops."):
                    ops[node[1]] = ".".join(node[2].split(".")[2:4])
    return lines, ops


def _lines(stacks: Sequence[str]) -> tuple[str, ...]:
    """Return the innermost line outside of torch of each stack trace, each line once."""
    lines: list[str] = []
    for stack in stacks:
        frames = _FRAME.findall(stack)
        of_program = [frame for frame in frames if not _LIBRARY.search(frame[0])]
        lines += [":".join(frame) for frame in (of_program or frames)[-1:]]
    return _unique(lines)


def _sort_lines(lines: Iterable[str]) -> tuple[str, ...]:
    """Sort lines such as `a.py:9` by file and number."""
    return tuple(sorted(lines, key=lambda line: (line.rpartition(":")[0], int(line.rpartition(":")[2]))))


def _unique(values: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(value for value in values if value))


def _ops_in_name(name: str) -> tuple[str, ...]:
    """Return the ops of a generated name as one text, such as `gelu_mul` of `cpp_fused_gelu_mul_0`."""
    if fused := _FUSED.match(name):
        return (fused[1],)
    return (_event_name(name).replace("::", "."),) if "." in name else ()


def _event_name(name: str) -> str:
    """Return the profiler's name of a kernel or an op: `a::b` for `torch.ops.a.b.default`."""
    parts = name.removeprefix("torch.ops.").split(".")
    if len(parts) == 1:
        return name
    return f"{'aten' if parts[0] == 'extern_kernels' else parts[0]}::{parts[1]}"


def _source_hash(source: str, name: str) -> str:
    """Return a hash of a source that does not depend on the kernel's generated name."""
    source = _PROFILED.sub("", source)
    plain = re.sub(rf"(?:graph_\d+_)?\b{re.escape(name)}|graph_\d+_{re.escape(name)}", "KERNEL", source)
    return hashlib.sha256(plain.encode()).hexdigest()[:32]


def write(directory: Path, kernels: Sequence[Kernel]) -> None:
    """Write the kernels to a draft run; creates no file without kernels."""
    if kernels:
        write_table(to_table(kernels), COMPILED_KERNELS, directory / f"{COMPILED_KERNELS.name}.parquet")


def to_table(kernels: Sequence[Kernel]) -> pa.Table:
    """Return the rows of `compiled_kernels`, with secrets and user names redacted."""

    def texts(values: Iterable[str | None]) -> pa.Array:
        originals = list(values)
        redacted = iter(redaction.redact_texts([value for value in originals if value]))
        return pa.array(
            [next(redacted) if value else None for value in originals], pa.string()
        ).dictionary_encode()

    columns = {
        C.GRAPH: texts(kernel.graph for kernel in kernels),
        C.POSITION: pa.array([kernel.position for kernel in kernels], pa.int64()),
        C.NAME: texts(kernel.name for kernel in kernels),
        C.KERNEL_BACKEND: texts(kernel.backend for kernel in kernels),
        C.TORCH_COMPILE_ID: texts(kernel.compile_id for kernel in kernels),
        C.KERNEL_HASH: texts(kernel.kernel_hash for kernel in kernels),
        C.SOURCE_HASH: texts(kernel.source_hash for kernel in kernels),
        C.SOURCE_LINES: texts(SEPARATOR.join(kernel.lines) for kernel in kernels),
        C.FUSED_OPS: texts(SEPARATOR.join(kernel.ops) for kernel in kernels),
    }
    return pa.table(columns, schema=COMPILED_KERNELS.arrow)
