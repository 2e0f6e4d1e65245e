"""Module tree: host and device time of every `torch.nn.Module`, forward and backward.

Times are those of the operator table, divided among the modules in which the ops were called: their sums,
with the row outside of any module, equal those of the operator table exactly. Device work launched outside of
ops, as by Triton kernels and extensions without a registered op, is counted too, and stated apart.

Sources: TensorBoard's profiler plugin (module view); torch.profiler key_averages.

Example:
    >>> import tracekit
    >>> result = tracekit.analyze(tracekit.open("latest"), "modules")  # doctest: +SKIP
    >>> result.tables["tree"].nlargest(5, "device_self_ns")  # doctest: +SKIP
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pandas as pd

from tracekit.analysis import NODE, PARENT, Analysis, Column, Remark, Result, TableSpec
from tracekit.analysis.modules import OUTSIDE, Modules, module_type, read_modules
from tracekit.analysis.savings import budget
from tracekit.runs.intervals import Ints
from tracekit.runs.run import Run, busy
from tracekit.runs.text import human
from tracekit.schema import C

from .shared.common import UNLINKED, absent_device_note, ints, select, share, sum_subtrees
from .shared.groups import sum_by_code
from .shared.host_rows import CAPTURED, NO_OP, Ops, launching_texts, read_ops
from .shared.intervals_by_class import drop_overruns, note_overruns
from .shared.programs import no_modules

NOT_IN_BOTH = "modules were not recorded in both runs: record both with Python stacks (`with_stack=True`)"
OUTSIDE_NAME = "(outside of any module)"
ARROW = " > "
MAX_PATH = 40
"""Names in a path: of modules nested thousands deep, all of them would take gigabytes."""
_NAMED = 3


def compute(run: Run) -> Result:
    """Compute the tables of modules."""
    modules = read_modules(run)
    if modules is None:
        return Result(notes=(no_modules(run),))
    ops = read_ops(run)
    sums, notes = _sums(run, modules, ops)
    tree = _tree(modules, sums)
    if modules.unlinked:
        notes.append(
            Remark(f"{modules.unlinked:,} backward ops have no known forward op: they stay where they ran")
        )
    tables = {
        "types": _types(tree),
        "tree": tree,
        "ops": _by_op(run, modules, ops, on_device=bool(tree["device_self_ns"].notna().any())),
    }
    return Result(tables, notes=(*notes, *note_overruns(run)))


def _sums(run: Run, modules: Modules, ops: Ops) -> tuple[pd.DataFrame, list[str]]:
    """Sums by node without those below it, the last of what is outside of any module; and notes."""
    size = len(modules.names) + 1
    place = modules.places(ops.frame[C.ROW_ID])
    node, backward = _nodes(modules, place), modules.backward[place]
    calls = modules.node[modules.call]
    rows = run.table("host_intervals", columns=[C.ROW_ID, C.DUR_NS]).sort_values(C.ROW_ID)
    sums = {
        "calls": np.bincount(calls, minlength=size),
        "call_ns": sum_by_code(calls, size, ints(rows, C.DUR_NS)[modules.call]),
        "host_self_ns": sum_by_code(node, size, ops.self_ns),
        "host_backward_ns": sum_by_code(node[backward], size, ops.self_ns[backward]),
    }
    on_device, notes = _device(run, modules, size)
    unknown = pd.array([pd.NA] * size, dtype="Int64")
    device = {name: on_device.get(name, unknown) for name in _ON_DEVICE}
    return pd.DataFrame({**sums, **device}).astype("Int64"), notes


def _nodes(modules: Modules, places: Ints) -> Ints:
    """Node of rows by position, of which the last is that outside of any module."""
    node = np.append(modules.node, OUTSIDE)[places]
    nodes: Ints = np.where(node == OUTSIDE, len(modules.names), node)
    return nodes


_ON_DEVICE = ("device_self_ns", "device_backward_ns", "no_op_ns")


def _device(run: Run, modules: Modules, size: int) -> tuple[dict[str, Ints], list[str]]:
    """Device time by node and its parts of the backward pass and without an op, or a note why not."""
    columns = [C.ROW_ID, C.DUR_NS, C.OP_ROW, C.LAUNCH_ROW, C.CAPTURED_OP]
    frame = drop_overruns(run, busy(run, columns))
    if frame.empty:
        return {}, [absent_device_note(run)]
    op, launch = modules.places(frame[C.OP_ROW]), modules.places(frame[C.LAUNCH_ROW])
    place = np.where(op >= 0, op, launch)
    is_linked, duration = place >= 0, ints(frame, C.DUR_NS)
    if not is_linked.any():
        return {}, [UNLINKED]
    node, backward = _nodes(modules, place), np.append(modules.backward, False)[place]
    # captured ops are known, although no op of this trace launched their kernels
    no_op = (op < 0) & frame[C.CAPTURED_OP].isna().to_numpy(bool)
    masks = (is_linked, is_linked & backward, is_linked & no_op)
    sums = {
        name: sum_by_code(node[mask], size, duration[mask])
        for name, mask in zip(_ON_DEVICE, masks, strict=True)
    }
    missing = int(duration[~is_linked].sum())
    part = human(missing / max(1, int(duration.sum())), "share")
    note = Remark(f"{part} of the device time has no recorded launch: its module is unknown")
    return sums, [note] if missing else []


def _tree(modules: Modules, sums: pd.DataFrame) -> pd.DataFrame:
    """One row per node in depth-first order, the largest total first, and last what is outside of modules."""
    parent = np.append(modules.parent, OUTSIDE)
    names = [*modules.names, OUTSIDE_NAME]
    depth, paths = np.zeros(len(parent), np.int64), [*names]
    for node, above in enumerate(parent.tolist()):
        if above != OUTSIDE:
            depth[node] = depth[above] + 1
            around = paths[above] if depth[node] < MAX_PATH else paths[above].partition(ARROW)[2]
            paths[node] = f"{around}{ARROW}{names[node]}"
    table = sums.assign(path=paths)
    table[NODE], table[C.DEPTH], table[C.MODULE] = np.arange(len(parent)), depth, names
    table[PARENT] = pd.arrays.IntegerArray(parent, parent == OUTSIDE)
    table["type"] = [*map(module_type, modules.names), ""]
    table.loc[len(parent) - 1, ["calls", "call_ns"]] = pd.NA
    weight = "host_total_ns"
    for side in ("host", "device"):
        self_ns, backward = sums[f"{side}_self_ns"], sums[f"{side}_backward_ns"]
        has_self, total = self_ns.notna().any(), f"{side}_total_ns"
        for name, values in ((total, self_ns), (f"{side}_backward_ns", backward)):
            total_ns = sum_subtrees(parent, values.to_numpy(np.int64)) if has_self else values
            table[name] = pd.Series(total_ns, dtype="Int64")
        table[f"{side}_share"] = share(table[total], int(self_ns.sum())) if has_self else np.nan
        weight = total if has_self else weight
    order = _depth_first(parent, table[weight].to_numpy(np.int64))
    return select(table, _TREE).iloc[order].reset_index(drop=True)


def _by_op(run: Run, modules: Modules, ops: Ops, *, on_device: bool) -> pd.DataFrame:
    """Self times of each node by op; their sums are the self times of the nodes."""
    node = _nodes(modules, modules.places(ops.frame[C.ROW_ID]))
    host = {"calls": np.ones_like(node), "host_self_ns": ops.self_ns}
    parts = [_sum_by_name(node, ops.names, ops.labels, host)]
    if on_device:
        columns = [C.ROW_ID, C.DUR_NS, C.OP_ROW, C.LAUNCH_ROW, *CAPTURED.values()]
        frame = drop_overruns(run, busy(run, columns))
        op, launch = modules.places(frame[C.OP_ROW]), modules.places(frame[C.LAUNCH_ROW])
        place = np.where(op >= 0, op, launch)
        names = launching_texts(run, frame, {C.NAME: NO_OP})[C.NAME]
        codes, is_linked = names.codes.astype(np.int64), place >= 0
        device = {"device_self_ns": ints(frame, C.DUR_NS)[is_linked]}
        parts.append(
            _sum_by_name(_nodes(modules, place)[is_linked], codes[is_linked], names.categories, device)
        )
    measures = ["calls", "host_self_ns", "device_self_ns"]
    rows = pd.concat([part.reindex(columns=[NODE, C.NAME, *measures]) for part in parts])
    rows = rows.astype(dict.fromkeys(measures, "Int64"))
    table = rows.groupby([NODE, C.NAME], sort=True)[measures].sum(min_count=1).reset_index()
    instances = np.array([*modules.names, OUTSIDE_NAME], object)
    table[C.MODULE] = instances[table[NODE].to_numpy(np.int64)]
    by = "device_self_ns" if on_device else "host_self_ns"
    return select(table, _OPS, f"-{by}", NODE, C.NAME)


def _sum_by_name(node: Ints, names: Ints, labels: pd.Index, values: dict[str, Ints]) -> pd.DataFrame:
    """One row per pair of node and name that occurs."""
    groups, keys = pd.factorize(node * max(len(labels), 1) + names, sort=True)
    sums = {name: sum_by_code(groups, len(keys), column) for name, column in values.items()}
    nodes, code = np.divmod(keys, max(len(labels), 1))
    return pd.DataFrame({NODE: nodes, C.NAME: np.asarray(labels, object)[code], **sums})


def _depth_first(parent: Ints, weight: Ints) -> list[int]:
    """Order of the nodes: each before those below it, siblings by weight; the last node stays last."""
    below: dict[int, list[int]] = {}
    for node in range(len(parent) - 1):
        below.setdefault(int(parent[node]), []).append(node)
    order: list[int] = []
    pending = sorted(below.get(OUTSIDE, []), key=lambda node: (weight[node], -node))
    while pending:
        order.append(pending.pop())
        pending += sorted(below.get(order[-1], []), key=lambda node: (weight[node], -node))
    return [*order, len(parent) - 1]


def _types(tree: pd.DataFrame) -> pd.DataFrame:
    """One row per class of modules; totals leave out modules inside one of the same class."""
    outer = _are_outermost(tree[C.DEPTH].tolist(), tree["type"].tolist())
    sums = [name for name in ("call_ns", "host_self_ns", "device_self_ns", "no_op_ns") if name in tree]
    grouped = tree.groupby("type", sort=True)
    table = grouped[["calls", *sums]].sum(min_count=1)
    totals = tree[outer].groupby("type", sort=True)[[*_TOTALS]].sum(min_count=1)
    table[[*_TOTALS]] = totals
    table["instances"] = grouped[C.MODULE].nunique()
    for side in ("host", "device"):
        self_ns = table[f"{side}_self_ns"]
        is_known = self_ns.notna().all()
        table[f"{side}_share"] = share(self_ns.to_numpy(np.int64), int(self_ns.sum())) if is_known else np.nan
    table = table.drop(index="").reset_index()
    by = "device_self_ns" if table["device_self_ns"].notna().any() else "host_self_ns"
    return select(table, _TYPES, f"-{by}", "type")


def _are_outermost(depths: list[int], types: list[str]) -> list[bool]:
    """Whether no module of the same class encloses each node, in depth-first order."""
    around, outermost = Counter[str](), list[bool]()
    path: list[str] = []
    for depth, kind in zip(depths, types, strict=True):
        around.subtract(path[depth:])
        del path[depth:]
        outermost.append(not around[kind])
        path.append(kind)
        around[kind] += 1
    return outermost


def compare(base: Run, head: Run) -> Result:
    """Compare the time of each module per step."""
    base_tree, head_tree = (compute(run).tables.get("tree") for run in (base, head))
    if base_tree is None or head_tree is None:
        return Result(notes=() if base_tree is head_tree else (NOT_IN_BOTH,))
    sides = [_per_step(base, base_tree), _per_step(head, head_tree)]
    measure = "device" if all(side["device_self_ns"].notna().any() for side in sides) else "host"
    joined = sides[0].add_suffix("_base").join(sides[1].add_suffix("_head"), how="outer")
    changed = _list_changes(joined, measure)
    by_type = _sum_changes(changed)
    tables = {"changed_types": by_type, "changed": changed}
    return Result(tables, notes=(*_name_changes(by_type, measure), *_count_unmatched(joined, measure)))


def _per_step(run: Run, tree: pd.DataFrame) -> pd.DataFrame:
    """Self and total times by path, of a step: whole nanoseconds, rounded down."""
    steps = max(1, budget(run).steps)
    times = tree[[f"{side}_{kind}_ns" for side in ("host", "device") for kind in ("self", "total")]]
    return (times // steps).set_index(tree["path"]).assign(type=tree["type"].to_numpy())


def _list_changes(joined: pd.DataFrame, measure: str) -> pd.DataFrame:
    """Rows whose time differs, the largest difference of self time first."""
    kinds = joined["type_head"].fillna(joined["type_base"]).to_numpy(object)
    table = pd.DataFrame({"path": joined.index.astype(object), "type": kinds, "measure": measure})
    for kind in ("self_ns", "total_ns"):
        for side in ("base", "head"):
            table[f"{side}_{kind}"] = joined[f"{measure}_{kind}_{side}"].astype("Int64").array
        table[f"delta_{kind}"] = table[f"head_{kind}"].fillna(0) - table[f"base_{kind}"].fillna(0)
    table = table[(table["delta_self_ns"] != 0) | (table["delta_total_ns"] != 0)]
    return select(_by_change(table, "path"), _CHANGED)


def _sum_changes(changed: pd.DataFrame) -> pd.DataFrame:
    """Differences of self times by class of modules; what is outside of modules is a row of its own."""
    named = changed.assign(type=changed["type"].where(changed["type"] != "", changed["path"]))
    sums = named.groupby("type", sort=True)[["delta_self_ns", "base_self_ns", "head_self_ns"]].sum()
    counts = named.groupby("type", sort=True)["path"].count()
    table = sums.assign(modules=counts, measure=changed["measure"].iloc[0] if len(changed) else "")
    return select(_by_change(table.reset_index(), "type"), _CHANGED_TYPES)


def _by_change(table: pd.DataFrame, name: str) -> pd.DataFrame:
    weight = -table["delta_self_ns"].abs()
    return table.assign(weight=weight).sort_values(["weight", name], kind="stable", ignore_index=True)


def _name_changes(by_type: pd.DataFrame, measure: str) -> Iterator[str]:
    """Name the classes whose self times differ most."""
    named = [
        f"{row['type']} {'+' if row['delta_self_ns'] > 0 else ''}{human(int(row['delta_self_ns']), 'ns')}"
        for row in by_type.head(_NAMED).to_dict("records")
        if row["delta_self_ns"]
    ]
    if named:
        yield Remark(f"largest changes of {measure} self time per step by class: {', '.join(named)}")


def _count_unmatched(joined: pd.DataFrame, measure: str) -> Iterator[str]:
    """Say how many modules only one run has: instances are renumbered when a model changes."""
    for which, other in (("base", "head"), ("head", "base")):
        absent = joined[f"{measure}_self_ns_{other}"].isna()
        unmatched = int((joined[f"{measure}_self_ns_{which}"].notna() & absent).sum())
        if unmatched:
            yield Remark(f"modules only in the {which}, matched by path: {unmatched:,}")


_PATH = Column(
    "path", "", f"names of the instances around it, the {MAX_PATH} innermost; equal names are one instance"
)
_TYPE = Column("type", "", "class of the module")
_CALLS = Column("calls", "count", "number of calls")
_TIMES = (
    Column("device_total_ns", "ns", "Σ of device intervals launched in it and in the modules below it"),
    Column("device_self_ns", "ns", "the same without the modules below it"),
    Column("device_share", "share", "device total over Σ of the device intervals with a known launch"),
    Column("host_total_ns", "ns", "Σ of the host self time of ops in it and in the modules below it"),
    Column("host_self_ns", "ns", "the same without the modules below it"),
    Column("host_share", "share", "host total over the host self time of all ops"),
    Column("device_backward_ns", "ns", "part of device total: launched in the backward pass"),
    Column("host_backward_ns", "ns", "part of host total: ops of the backward pass"),
    Column("call_ns", "ns", "Σ of the durations of its calls on the host, with Python outside of ops"),
    Column("no_op_ns", "ns", "part of device self: launched outside of ops, which the op table leaves out"),
)
_TREE = (
    Column(C.MODULE, "", "instance: class and a number, in order of first calls", indent_by=C.DEPTH),
    _CALLS,
    *_TIMES,
    _TYPE,
    _PATH,
    Column(C.DEPTH, "", "number of modules around it"),
    Column(NODE, "", "number of the node, in order of first calls"),
    Column(PARENT, "", "node of the module around it; empty at the top"),
)
_OPS = (
    Column(C.MODULE, "", "instance"),
    Column(C.NAME, "", "name of the op; also of device intervals that no op launched"),
    Column("calls", "count", "calls of the op in the module; unknown for ops of graphs"),
    Column("device_self_ns", "ns", "Σ of device intervals that it launched directly in the module"),
    Column("host_self_ns", "ns", "Σ of its self time in the module"),
    Column(NODE, "", "node of the module in `tree`"),
)
_TOTALS = ("host_total_ns", "host_backward_ns", "device_total_ns", "device_backward_ns")
_SELF_SHARE = {
    "host_share": Column("host_share", "share", "host self over the host self time of all ops"),
    "device_share": Column(
        "device_share", "share", "device self over Σ of the device intervals with a known launch"
    ),
}
_TYPES = (
    _TYPE,
    Column("instances", "count", "number of instances"),
    _CALLS,
    *(_SELF_SHARE.get(column.name, column) for column in _TIMES),
)
_MEASURE = Column("measure", "", "device, or host where a run has no device time by module")
_CHANGED_TYPES = (
    _TYPE,
    Column("modules", "count", "modules whose time differs"),
    _MEASURE,
    Column("delta_self_ns", "ns", "head − base of self time per step"),
    Column("base_self_ns", "ns", "self time per step of these modules in the base"),
    Column("head_self_ns", "ns", "self time per step of these modules in the head"),
)
_CHANGED = (
    _PATH,
    _TYPE,
    _MEASURE,
    Column("delta_self_ns", "ns", "head − base of self time per step"),
    Column("base_self_ns", "ns", "self time per step in the base; empty if it has no such module"),
    Column("head_self_ns", "ns", "self time per step in the head; empty if it has no such module"),
    Column("delta_total_ns", "ns", "head − base of total time per step, with the modules below it"),
    Column("base_total_ns", "ns", "total time per step in the base"),
    Column("head_total_ns", "ns", "total time per step in the head"),
)

ANALYSIS = Analysis(
    name="modules",
    title="Modules",
    question="Which torch.nn modules take host and device time, forward and backward?",
    definition=(
        "An op belongs to the innermost module call around it on its thread; an op of the backward pass, "
        "with all that runs in it, to the module of the forward op with the same autograd sequence number "
        "(the last that started), if one thread of the process gave out that number. Host self = Σ of self "
        "times of ops as in `ops`; device self = Σ of device intervals by their launching op, else by their "
        "launching call; totals add the modules below. The self times of all rows, with that outside of any "
        "module, sum to those of `ops` exactly, device time after subtracting `no_op_ns`. Gradient "
        "accumulation and optimizers are outside of modules. Over all threads and ranks: equal paths are "
        "one module. In comparisons, times are per step, rounded down, and modules are matched by path."
    ),
    tables=(
        TableSpec("types", "By class", _TYPES),
        TableSpec("tree", "By module; the largest total first", _TREE),
        TableSpec("ops", "By module and op", _OPS),
    ),
    sources=("TensorBoard profiler plugin: module view", "torch.profiler key_averages"),
    order=41,
    shares=(read_modules,),
    compute=compute,
    compare=compare,
    comparison=(
        TableSpec("changed_types", "Classes of modules whose time per step differs", _CHANGED_TYPES),
        TableSpec("changed", "Modules whose time per step differs", _CHANGED),
    ),
)
