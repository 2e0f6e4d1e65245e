"""Kernels of compiled code: the lines of the program that became each, and what made the kernels that ran.

A kernel of compiled code is an outermost op within a call of an Inductor graph, or the device kernels that it
launched. The k-th op of a name in a call is the k-th call of that name in the graph's code, whose lines are
in `compiled_kernels`. Calls without a key, as without a cache, belong to the only graph with the same ops.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd

from tracekit.analysis import Column, TableSpec
from tracekit.analysis.kernel_names import COMMUNICATION, matches
from tracekit.ingest.link.nesting import climb_to
from tracekit.runs import kernel_sources
from tracekit.runs.kernel_sources import is_unkeyed
from tracekit.runs.run import Run
from tracekit.schema import C, DeviceKind, HostKind

from ..shared.common import NO_PARENT, Bools, ints, is_kind, positions, select, share
from ..shared.thread_ranges import covering_ranges, launch_calls, outermost_ranges
from .regions import (
    COMPILED,
    GENERATED,
    GRAPH,
    INDUCTOR,
    INSIDE,
    ORIGIN,
    READ,
    CompiledRun,
    starts_in_compiled,
)

CPP = r"^(?:graph_\d+_)?cpp_(?:fused|CppMicroGemm|\w*template)"
IDENTITY, NTH, CALL = "source", "nth", "call"
UNJOINED = (
    "source lines of compiled kernels are unknown: collect with --compile-artifacts, or import with "
    "--compile-artifacts DIR, the folder of TORCH_TRACE"
)
JOINED = "{share:.1%} of the time of compiled code's kernels is joined to source lines"
NO_CPP = (
    "C++ kernels of compiled code were not recorded: set TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE=1, as "
    "`tracekit collect --compile-artifacts` does"
)
_KEY = r"CompiledFxGraph (\S+)"
_NO_KEY = "None"  # key in the name of a call of a graph that was not looked up in the cache
_READ = (*READ, C.KERNEL_BACKEND, C.KERNEL_HASH, C.KERNEL_KWARGS)
_FACTS = [C.KERNEL_BACKEND, C.SOURCE_LINES, C.FUSED_OPS, IDENTITY]


def read_calls(run: Run) -> pd.DataFrame:
    """Ops that are kernels of compiled code, or launch them, in steps if steps are marked.

    Returns:
        Rows of `host_intervals`, disjoint on each thread, with lines, fused ops, backend and identity of the
        source; missing where unknown.
    """
    host = run.table("host_intervals", columns=list(_READ), where=is_kind(HostKind.OP, HostKind.ANNOTATION))
    if run.rows("steps"):
        host = host[host[C.STEP].notna()]
    graphs = outermost_ranges(host[matches(host[C.NAME], GRAPH)])
    ops = host[(host[C.KIND] == HostKind.OP).to_numpy(bool)]
    call = covering_ranges(graphs, ops)
    generated = ops[C.KERNEL_BACKEND].notna() | matches(ops[C.NAME], rf"{INDUCTOR}|{CPP}")
    rows = ops.assign(**{CALL: call})[(call != NO_PARENT) | generated.to_numpy(bool)]
    rows = outermost_ranges(rows).astype(dict.fromkeys((C.NAME, C.KERNEL_BACKEND, C.KERNEL_HASH), object))
    keys = graphs[C.NAME].astype(object).astype("string").str.extract(_KEY)[0].astype(object)
    return _with_sources(run, rows, keys.to_numpy(object))


def _with_sources(run: Run, rows: pd.DataFrame, keys: Any) -> pd.DataFrame:
    """Add what the artifacts of torch.compile say about each op."""
    sources = kernel_sources.kernels(run).rename(columns={C.SOURCE_HASH: IDENTITY})
    sources[NTH] = sources.groupby([C.GRAPH, C.NAME]).cumcount()
    rows = rows.assign(**{NTH: rows.groupby([CALL, C.NAME]).cumcount()})
    rows[C.GRAPH] = np.array(_graph_of_each(rows, sources, keys), object)
    recorded = rows[[C.KERNEL_BACKEND, C.KERNEL_HASH]]
    rows = rows.drop(columns=C.KERNEL_BACKEND)
    rows = rows.merge(
        sources[[C.GRAPH, C.NAME, NTH, *_FACTS]], how="left", on=[C.GRAPH, C.NAME, NTH], validate="m:1"
    )
    _fill_by_name(rows, sources, (rows[CALL] == NO_PARENT).to_numpy(bool))
    rows[C.KERNEL_BACKEND] = _fill(rows[C.KERNEL_BACKEND], recorded[C.KERNEL_BACKEND])
    rows[IDENTITY] = _fill(rows[IDENTITY], recorded[C.KERNEL_HASH])
    return rows


def _fill(first: pd.Series, other: pd.Series) -> pd.Series:
    """Fill in texts that are missing."""
    return first.astype(object).fillna(other.astype(object))


def _fill_by_name(rows: pd.DataFrame, sources: pd.DataFrame, outside: Bools) -> None:
    """Fill in what all calls of a generated kernel have in common, for rows outside of calls of graphs."""
    # several graphs may have a kernel of one name: only what is the same in all of them is known
    generated = sources[sources[IDENTITY].notna()].drop_duplicates([C.NAME, *_FACTS])
    alike = generated.drop_duplicates(C.NAME, keep=False).set_index(C.NAME)
    names = rows[C.NAME].where(outside)
    for name in _FACTS:
        rows[name] = _fill(rows[name], names.map(alike[name]))


def _graph_of_each(rows: pd.DataFrame, sources: pd.DataFrame, keys: Any) -> list[str]:
    """Key of the graph of each op, as in `sources`; empty if unknown."""
    names_run = set(rows[C.NAME])
    graphs = {
        str(key): Counter(name for name in kernels[C.NAME] if name in names_run)
        for key, kernels in sources.groupby(C.GRAPH, sort=True)
    }
    call_of_row = rows[CALL].to_numpy(np.int64)
    calls = np.unique(call_of_row[call_of_row != NO_PARENT]).tolist()
    key_of_call = {NO_PARENT: ""} | {call: str(keys[call]) for call in calls}
    unknown = [call for call in calls if key_of_call[call] not in graphs]
    listed = rows[np.isin(call_of_row, unknown) & rows[C.NAME].isin(sources[C.NAME])]
    names = listed.groupby(CALL)[C.NAME].agg(list)
    key_of_call |= {
        call: _find_fitting(Counter(names.get(call, ())), graphs, key_of_call[call]) for call in unknown
    }
    return [key_of_call[call] for call in call_of_row.tolist()]


def _find_fitting(names: Counter[str], graphs: dict[str, Counter[str]], key: str) -> str:
    """The only graph with these ops that has the key, or no known key; empty for none or several."""
    keyed = key != _NO_KEY
    matching = [graph for graph, ops in graphs.items() if ops == names and (is_unkeyed(graph) or not keyed)]
    return matching[0] if len(matching) == 1 and names else ""


def measure_kernels(run: Run, parts: CompiledRun) -> pd.DataFrame:
    """Kernels of compiled code with their time: those on devices, else the ops of the host.

    Returns:
        Rows as `read_calls` returns them; of device kernels, name and duration are the kernel's.
    """
    host = read_calls(run)
    if parts.kernels.empty:
        return host
    call = covering_ranges(host, launch_calls(run, parts.kernels))
    generated = (parts.kernels[ORIGIN] == GENERATED).to_numpy(bool)
    is_compiled = (call != NO_PARENT) | generated
    kernels = parts.kernels.loc[is_compiled, [C.NAME, C.DUR_NS]]
    rows: pd.DataFrame = kernels.astype({C.NAME: object}).reset_index(drop=True)
    for name in (*_FACTS, C.KERNEL_KWARGS):
        values = np.append(host[name].astype(object).to_numpy(object), [None])
        rows[name] = values[call[is_compiled]]  # `NO_PARENT` is the last one, which is missing
    sources = kernel_sources.kernels(run).rename(columns={C.SOURCE_HASH: IDENTITY})
    _fill_by_name(rows, sources, call[is_compiled] == NO_PARENT)
    return rows


def sum_lines(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per source of a kernel and its lines, the most time first; rows as of `measure_kernels`."""
    names = [column.name for column in _LINES]
    keys = [C.KERNEL_BACKEND, C.SOURCE_LINES, C.FUSED_OPS, C.KERNEL_KWARGS, IDENTITY]
    plain = rows.astype(dict.fromkeys(keys, object)).fillna(dict.fromkeys(keys, ""))
    plain[CALL] = plain[IDENTITY].where(plain[IDENTITY] != "", plain[C.NAME])
    by: list[Hashable] = [CALL, *keys]
    sums = plain.groupby(by, sort=True).agg(
        **{C.NAME: (C.NAME, "min"), "count": (C.DUR_NS, "size"), "sum_ns": (C.DUR_NS, "sum")}
    )
    sums = sums.reset_index().sort_values(["sum_ns", C.NAME, *keys], ascending=[False, *[True] * 6])
    sums["share"] = share(ints(sums, "sum_ns"), int(sums["sum_ns"].sum()))
    result: pd.DataFrame = sums[names].reset_index(drop=True)
    return result


def share_with_lines(rows: pd.DataFrame) -> float | None:
    """Share of the time of kernels whose lines are known; None without any time."""
    total = int(rows[C.DUR_NS].sum())
    return int(rows.loc[rows[C.SOURCE_LINES].notna(), C.DUR_NS].sum()) / total if total else None


def notes(run: Run, rows: pd.DataFrame) -> tuple[str, ...]:
    """Notes on what the lines of kernels are missing for."""
    sources = kernel_sources.kernels(run)
    if sources.empty:
        return (UNJOINED,)
    joined = share_with_lines(rows)
    texts = [] if joined is None else [JOINED.format(share=joined)]
    cpp = sources.loc[sources[C.KERNEL_BACKEND] == "cpp", C.NAME]
    return (*texts, *([NO_CPP] if len(cpp) and not cpp.isin(rows[C.NAME]).any() else []))


_LINES = (
    Column(C.SOURCE_LINES, "", "lines of the program that the kernel computes; empty if unknown"),
    Column(C.FUSED_OPS, "", "ops that were fused; the kernel's own list of them where nodes are unknown"),
    Column(C.NAME, "", "the kernel, or the op of ATen or of a library that compiled code calls"),
    Column("count", "count", "calls"),
    Column("sum_ns", "ns", "Σ of durations"),
    Column("share", "share", "of the time of all kernels of compiled code"),
    Column(C.KERNEL_BACKEND, "", "triton, cpp or extern; empty if unknown"),
    Column(C.KERNEL_KWARGS, "", "parameters that tuning chose; empty if unknown"),
    Column(
        IDENTITY,
        "",
        "hash of the source without its generated name, else Inductor's own with it; empty if unknown",
    ),
)
LINES = TableSpec("lines", "Source lines and their kernels, most time first", _LINES)

PART = "part"
PARTS = ("compiled", "library", "communication", "eager", "wrapper", "opaque graph")
COMPILER, LIBRARY, COMM, ATEN, WRAPPER, OPAQUE = PARTS
LIBRARIES = {
    "cuBLAS, cuBLASLt": r"cublas|nvjet|(?:\b|_)[hsdcz]?gem[mv]|gemv|splitKreduce|(?:ampere|volta|turing)_",
    "cuDNN": r"cudnn|xmma|implicit_convolve|winograd|cask_",
    "CUTLASS": r"cutlass",
    "flash attention": r"flash_(?:fwd|bwd|attn)|pytorch_flash|flashinfer|flash::|fmha",
    "rocBLAS, hipBLASLt, MIOpen, Composable Kernel": r"Cijk_|hipblas|rocblas|miopen|\bck::|ck_tile",
}
"""Patterns of the kernels of libraries, by library."""
_LIBRARY = rf"(?i)^(?!.*\bat::native::).*(?:{'|'.join(LIBRARIES.values())})"
_LIBRARY_OPS = (
    r"^(?:mkldnn|onednn|mkl|quantized)::|^aten::(?:mkldnn_\w+|_?(?:mm|addmm|bmm|baddbmm|addbmm|addmv|mv|dot)_?"
    r"|\w*convolution\w*|_?linalg_\w+|_scaled_dot_product_flash_attention\w*)$"
)
_WRAPPERS = rf"{COMPILED}|^TorchDynamo|^AOTDispatcher|^Pregraph bytecode|^(?:autograd::\S+ )?CompiledFunction"


def sum_producers(run: Run, parts: CompiledRun) -> pd.DataFrame:
    """Time by part: of kernels on devices, else of ops on the host without the ops in them."""
    rows = _on_device(run, parts.kernels) if len(parts.kernels) else _on_host(run)
    rows[PART] = pd.Categorical(rows[PART], PARTS, ordered=True)
    grouped = rows.groupby(PART, sort=True, observed=True)
    sums = grouped.agg(count=(C.DUR_NS, "size"), sum_ns=(C.DUR_NS, "sum"))
    inside = rows[rows[INSIDE]].groupby(PART, sort=True, observed=True)[C.DUR_NS].sum()
    sums["in_compiled_ns"] = inside.reindex(sums.index).fillna(0).astype(np.int64)
    for name, column in (("share", "sum_ns"), ("compiled_share", "in_compiled_ns")):
        sums[name] = share(sums[column].to_numpy(np.int64), int(sums[column].sum()))
    sums = sums.reset_index().astype({PART: object})
    return select(sums, _PARTS)


def _on_device(run: Run, kernels: pd.DataFrame) -> pd.DataFrame:
    names = kernels[C.NAME]
    opaque = (kernels[C.KIND] == DeviceKind.GRAPH).to_numpy(bool)
    # A launching op can name a compiler, as of Triton kernels of the program's own.
    ops = run.table("host_intervals", columns=[C.ROW_ID, C.KERNEL_BACKEND])
    of_compiler = kernels[C.OP_ROW].isin(ops.loc[ops[C.KERNEL_BACKEND].notna(), C.ROW_ID])
    generated = ((kernels[ORIGIN] == GENERATED) | of_compiler.fillna(value=False)).to_numpy(bool)
    part = np.select(
        [opaque, generated, matches(names, COMMUNICATION), matches(names, _LIBRARY)],
        [OPAQUE, COMPILER, COMM, LIBRARY],
        ATEN,
    )
    return kernels[[C.DUR_NS, INSIDE]].assign(**{PART: part.astype(object)})


def _on_host(run: Run) -> pd.DataFrame:
    """Ops and calls of graphs with the time that is not that of others in them."""
    host = run.table("host_intervals", columns=[*READ, C.PARENT_ROW, C.KERNEL_BACKEND])
    ops = (host[C.KIND] == HostKind.OP).to_numpy(bool) | matches(host[C.NAME], GRAPH).to_numpy(bool)
    parent = positions(host[C.ROW_ID], host[C.PARENT_ROW])
    parent = climb_to(parent, parent, ops)
    durations = host[C.DUR_NS].to_numpy(np.int64)
    self_ns = durations.copy()
    nested = ops & (parent != NO_PARENT)
    np.subtract.at(self_ns, parent[nested], durations[nested])
    rows = host.assign(**{C.DUR_NS: self_ns})[ops]
    names = rows[C.NAME]
    generated = rows[C.KERNEL_BACKEND].notna() | matches(names, rf"{INDUCTOR}|{CPP}")
    part = np.select(
        [generated, matches(names, _WRAPPERS), matches(names, COMMUNICATION), matches(names, _LIBRARY_OPS)],
        [COMPILER, WRAPPER, COMM, LIBRARY],
        ATEN,
    )
    rows = rows.assign(
        **{PART: part.astype(object), INSIDE: starts_in_compiled(host, rows) | (part == WRAPPER)}
    )
    selected: pd.DataFrame = rows[rows[C.STEP].notna()] if run.rows("steps") else rows
    return selected


_PARTS = (
    Column(
        PART,
        "",
        "compiled: generated by Inductor or Triton; library: cuBLAS, cuDNN, CUTLASS, flash attention, MKL, "
        "oneDNN and the like; communication; eager: other kernels and ops; wrapper: host time of compiled "
        "code outside of its kernels; opaque graph: CUDA graphs whose kernels were not recorded",
    ),
    Column("count", "count", "kernels, or ops of the host"),
    Column("sum_ns", "ns", "Σ of kernel durations; without a device, Σ of op durations without nested ops"),
    Column("share", "share", "of all parts"),
    Column("in_compiled_ns", "ns", "the part of it that compiled code called"),
    Column("compiled_share", "share", "of all that compiled code called"),
)
PRODUCERS = TableSpec("producers", "Time by what made the kernels", _PARTS)
