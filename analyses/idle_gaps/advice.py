"""Sentences on the gaps of a rule of `idle_gaps`: where they are, and what to do."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd

from tracekit.analysis.idle_causes import COVERED_NS, MANAGED, READS
from tracekit.analysis.kernel_names import LINE, brief
from tracekit.analysis.savings import Budget
from tracekit.runs.range_names import COLLECTION
from tracekit.runs.run import Run
from tracekit.schema import C, DeviceKind

from ..shared.common import LAUNCH_PATTERN, Bools, contains, duration, ints, overlap_by, percent
from ..shared.groups import group_rows
from ..shared.host_columns import HostColumns, read_host_columns
from ..shared.host_rows import NO_OP, largest_waits
from ..shared.idle_neighbors import AFTER, read_occupying
from ..shared.pacing import delaying_waits, waited_ns
from ..shared.programs import COLLECT_LESS, Program
from .causes import (
    ALLOCATING,
    BETWEEN,
    CALL,
    INITIAL,
    LATENCY_NS,
    NAMED,
    OP,
    SOURCE,
    WAITS_ELSEWHERE,
    total_ns,
)
from .context import MIN_FIRST_RATIO, ranks_that_wait

MAX_NAMED, MIN_NAMED_SHARE = 3, 0.01
"""Maximum number of ops named in an advice, and minimum share of the gaps of each."""
MIN_ONE_OFF_SHARE = 0.5
"""Share of a single gap from which the advice warns that it may be a one-time event."""


def one_off(rows: pd.DataFrame, budget: Budget, ranks: int) -> str:
    """Warn if one gap is most of the idle time, and far longer than any other of its op.

    A single marked step of a rank is one of many: what it does recurs.
    """
    if budget.marked and budget.steps <= ranks:
        return ""
    lengths = ints(rows, C.DUR_NS)
    longest = int(lengths.max()) / total_ns(rows)
    alike = rows[OP] == rows[OP].iloc[int(lengths.argmax())]
    alike &= MIN_FIRST_RATIO * lengths >= lengths.max()
    if longest < MIN_ONE_OFF_SHARE or alike.sum() > 1 or mostly(rows, rows[INITIAL]):  # which says so
        return ""
    amount = "It is a single gap" if len(rows) == 1 else f"A single gap is {percent(longest)} of it"
    return f". {amount}: if it happens only once, exclude it with warm-up steps"


def amount(rows: pd.DataFrame, budget: Budget) -> str:
    """Text: share of the time, amount per step and number of gaps."""
    idle = total_ns(rows)
    size = f"{percent(budget.share(idle))} of the time: {duration(budget.per_step(idle))} {budget.per}"
    return f"{size}, in {budget.count(len(rows), 'gap')}"


def divide_launches(rows: pd.DataFrame, budget: Budget) -> str:
    """Sentence on the parts of gaps before and after the begin of launch calls; empty without the latter."""
    latency_ns = int(ints(rows, LATENCY_NS).sum())
    if not budget.matters(latency_ns):
        return ""
    unknown_ns = int(rows.loc[rows[C.LAUNCH_ROW].isna(), C.DUR_NS].sum())
    parts = (total_ns(rows) - latency_ns - unknown_ns, latency_ns, unknown_ns)
    before, after, unknown = (percent(budget.share(ns)) for ns in parts)
    text = f"{before} of the time passes before the launch calls, {after} from then until the work starts"
    also = f", {unknown} before work without a recorded call" if budget.matters(unknown_ns) else ""
    return f"{text}{also}. "


def largest_part(rows: pd.DataFrame, keys: Sequence[str] = (OP, SOURCE), of_ns: int = 0) -> str:
    """Text: the ops with most idle time and their source lines; shares are of that time, or of `of_ns`.

    An op counts as long as it runs in the gaps; the rest of these is launch latency, or other work.
    """
    groups = group_rows(rows, keys)
    covered = np.minimum(ints(rows, COVERED_NS), ints(rows, C.DUR_NS))
    sums = groups.sums(covered if keys[0] == OP else ints(rows, C.DUR_NS))
    largest = np.argsort(-sums, kind="stable")[:MAX_NAMED]  # groups are in the order of their keys
    shares = sums / (of_ns or total_ns(rows))
    parts = [
        f"{_place([str(rows[key].iloc[groups.first[group]]) for key in keys])} ({100 * shares[group]:.0f}%)"
        for group in largest
        if shares[group] >= MIN_NAMED_SHARE
    ]
    if keys[0] == OP and (rows[OP] == BETWEEN).all() and not (rows[SOURCE] != "").any():
        return "No op or source line was recorded for these gaps"
    verb = "is" if len(parts) == 1 else "are"
    if parts:
        return f"The largest part{'s' if len(parts) > 1 else ''} {verb} {', '.join(parts)}"
    return f"It is spread over {len(shares):,} ops and lines"


def _place(names: list[str]) -> str:
    """Text `call in op at line`, without unknown or repeated parts, but never empty."""
    *names, line = names
    named = [name for name in names if name and name != BETWEEN] or names
    text = " in ".join(brief(name) for name in named if name)
    return text if not line or line in names else f"{text} at {brief(line, LINE)}"


_BETWEEN = BETWEEN[:-1]  # prefix of labels of gaps in which no host row covers most of the host's part
MEMORY = r"(?i)malloc|free|hostalloc"
LOAD_IN_WORKERS = (
    "Load in the background: DataLoader(num_workers=..., prefetch_factor=..., pin_memory=True, "
    "persistent_workers=True)"
)
MADE_IN_STEP = (
    ". The step makes the loader's iterator anew, which starts workers again and cannot load its first batch "
    "ahead: make it once, before the steps"
)
FASTER_WORKERS = (
    "Its workers are slower than the GPU: {add}{keep}decode and transform less per batch (once before "
    "training, or on the GPU)"
)
ADD_WORKERS = "add workers up to the number of cores, "
NO_FREE_CORES = "add workers only if cores are free (the CPU thread stalls, too), "
_ON_DEVICE = (
    'The CPU fills a tensor there: make it on the device (`device="{module}"` in the call of `torch`), '
    "which also saves the copy"
)
FIRST_USES = (
    "These calls are slow on first use only: they load code, initialize a library or the device, choose an "
    "algorithm or allocate a workspace for a shape. Run each shape before recording, and in production "
    "before the first request"
)
READ_BACKS = (
    "The program waited there for a copy to the host, and took this long, in code of which nothing was "
    "recorded, until it launched work on data that was on the device already. To find it, {stacks}; do that "
    "work on the device or in another thread, or launch the next kernels before it"
)
CHECKS = (
    "It checks sizes and strides there, in a Python function per tensor, each of which was recorded: "
    "`torch._inductor.config.size_asserts = False` leaves the checks out; record without stacks to see what "
    "they cost"
)
_LOOKUP = "^TorchDynamo Cache Lookup$"
_GUARDS = (
    "Guards are checked there before each call of compiled code: compile one outer function instead of many "
    "inner ones, and list the guards with `TORCH_LOGS=guards`"
)
_OPTIMIZER = r"^Optimizer\.(?:step|zero_grad)#|^aten::_(?:foreach|fused)_"
_UPDATES = (
    "The optimizer prepares its update there, parameter by parameter: construct it with `fused=True` where "
    "it has fused kernels, or capture the update in a graph (`capturable=True`)"
)
_READING = (
    "The program waits there for a file or for input: read ahead in another thread, or end the recording "
    "before it"
)
_FILLS = (
    r"^aten::(?:normal_?|uniform_?|random_|bernoulli_?|exponential_|rand\w*|zero_|fill_|ones|zeros|arange)$"
)
"""Ops that fill a new tensor, which takes long on the CPU only."""

_BY_OP = {
    READS: _READING,
    f"^{COLLECTION}": f"Python collects garbage there. {COLLECT_LESS}",
    f"^{re.escape(MANAGED)}$": (
        "The CPU writes or reads managed memory there, and its pages move one by one: fill it in a kernel, "
        "and prefetch results to the host (`cudaMemPrefetchAsync`) before reading them"
    ),
    _FILLS: _ON_DEVICE,
    _LOOKUP: _GUARDS,
    _OPTIMIZER: _UPDATES,
}
"""What to do about the work of the host in an op, by its name."""


def hint(rows: pd.DataFrame) -> str:
    """Sentence on an op with most of the time that a program can do without, empty for others."""
    hints = (text for pattern, text in _HINTS.items() if mostly(rows, contains(rows[OP], pattern)))
    return next((f". {text}" for text in hints), "")


_HINTS = {
    "^aten::_coalesce$": (
        "Sparse tensors are coalesced in each product: call `.coalesce()` once, or keep them in CSR"
    ),
    _LOOKUP: _GUARDS,
}
"""What to do about an op, by its name."""


def with_kernels(rows: pd.DataFrame) -> pd.DataFrame:
    """Gaps with the next kernel as label where the responsible range is named only by a compiled graph."""
    compiled = contains(rows[OP], "CompiledFxGraph")
    label = "compiled graph before " + rows[AFTER].astype(str)
    return rows.assign(**{OP: rows[OP].astype(str).mask(compiled, label)})


def on_host(rows: pd.DataFrame, program: Program) -> str:
    """Advice by what is known of the host's activity: waiting, not recorded, or busy."""
    for pattern, advice in _BY_OP.items():
        if mostly(rows, contains(rows[OP], pattern)):
            return advice.format(module=program.module)
    if mostly(rows, rows[INITIAL]):
        return (
            "The CPU compiles or loads code there, on first use only: warm up before recording, and in "
            "production before the first request"
        )
    if mostly(rows, rows[WAITS_ELSEWHERE]):
        return (
            "The host waits there for a request, a lock or another process: fine if there is no work, else "
            "prepare the next work earlier"
        )
    if mostly(rows, rows[ALLOCATING]):
        return (
            "Most of it is in calls that allocate or free memory of the host or the device, which also "
            "initialize it: allocate buffers once and reuse them"
        )
    if mostly(rows, contains(rows[OP], f"^{re.escape(_BETWEEN)}") & ~rows[NAMED]):
        return (
            "The host's activity there was not recorded: code outside of recorded calls, or a wait for "
            f"something other than the device (a request, data, a lock). To find it, {program.stacks}; move "
            "work out of the step or launch the next kernels before it"
        )
    return (
        "The host is busy there without launching: move that work to the device or out of the step, or "
        "launch the next kernels before it"
    )


def mostly(rows: pd.DataFrame, chosen: pd.Series | Bools) -> bool:
    """Whether more than half of the time is in these gaps."""
    return bool(2 * rows[C.DUR_NS][chosen].sum() > total_ns(rows))


def main_call(rows: pd.DataFrame) -> str:
    """The call with most idle time."""
    return str(rows.groupby(CALL, observed=True)[C.DUR_NS].sum().idxmax())


def on_call(rows: pd.DataFrame, call: str) -> str:
    """Advice on the call that takes most of the time of these gaps."""
    if mostly(rows, rows[INITIAL]):
        return (
            "Such a call is slow on first use only, because it loads code or initializes a library or the "
            "device: warm up before recording, and in production before the first request"
        )
    if re.search(MEMORY, call):
        return (
            "Calls that allocate or free memory may also wait for the device and should not recur in a step: "
            "find out why the allocator or library requests memory each time"
        )
    if re.search(LAUNCH_PATTERN, call):
        return (
            "A slow launch usually loads the kernel's code or uploads the graph, on first use only (see "
            "`slowest` of `launch_latency`): warm up before recording"
        )
    return "Find out why the call is slow, and keep it out of the step"


_WAITING_LAUNCHES = (
    "Launch calls return only after their kernels, so the device is idle while the CPU prepares the next "
    "launch: let them return at once if the device can (no `CUDA_LAUNCH_BLOCKING` or similar setting), or do "
    "more work per launch (a larger batch, fused ops)"
)

MIN_COPIED_SHARE = 0.25
"""Share of gaps before copies from which copies are spoken of where launch calls wait for their kernels."""
MAX_UPLOAD_NS = 50_000
"""Time before a launch call in which a copy may upload what the call needs."""
_COPY_LESS = (
    "{share} of it passes before {copies} of data, which asynchronous launches would not change: copy less "
    "often (keep values on the device, join small tensors, read values later). "
)


def _name_copies(rows: pd.DataFrame, device: pd.DataFrame, host: HostColumns, budget: Budget) -> str:
    """Sentence on gaps that end with copies apart from launches; empty if few of the gaps do."""
    copies = rows[rows[AFTER].isin(device.loc[device[C.KIND] == DeviceKind.MEMCPY, C.NAME].unique())]
    calls = np.unique(host.positions(device[C.LAUNCH_ROW]))
    calls = calls[calls >= 0]
    uploads = host.start[calls] - MAX_UPLOAD_NS, host.end[calls]
    ends = ints(copies, C.START_NS) + ints(copies, C.DUR_NS)
    of_launch = overlap_by(host.rank[calls], uploads, ints(copies, C.RANK), (ends, ends + 1)) > 0
    part = total_ns(copies[~of_launch]) / total_ns(rows)
    if part < MIN_COPIED_SHARE:
        return ""
    return _COPY_LESS.format(share=percent(part), copies=budget.count(int((~of_launch).sum()), "copy"))


def on_launches(run: Run, rows: pd.DataFrame, budget: Budget, launch_less: str) -> str:
    """Advice on gaps in which the host launches late: because it waits, or because it is slow."""
    device, host = read_occupying(run), read_host_columns(run)
    if ranks_that_wait(device, host):
        return f"{_name_copies(rows, device, host, budget)}{_WAITING_LAUNCHES}"
    if waits := _name_waits(run, rows, budget):
        return f"{waits}. Then launch less often {launch_less}"
    return (
        f"The host launches more slowly than the device runs: launch less often {launch_less}, or do more "
        "work per launch (a larger batch)"
    )


def _name_waits(run: Run, rows: pd.DataFrame, budget: Budget) -> str:
    """Sentence on waits before these gaps that take longer: without them the host could run ahead."""
    waits = delaying_waits(run, marked=budget.marked)
    last = waits[C.RANK].map((rows[C.START_NS] + rows[C.DUR_NS]).groupby(rows[C.RANK]).max())
    before = waits[waits[C.START_NS] + waits[C.DUR_NS] < last.fillna(-1)]
    by_thread = before.groupby([C.RANK, C.PID, C.TID])[C.DUR_NS].sum()
    if by_thread.empty or by_thread.max() < total_ns(rows):
        return ""
    ops = largest_waits(waits)["op"].tolist()
    named = " and ".join(brief(op) for op in ops if op != NO_OP)
    most = f", most in {named}" if named else ""
    waited = duration(budget.per_step(waited_ns(waits)))
    copies = [re.search(r"copy|::to$", op) is not None for op in ops]
    ways = {
        "copy from and to pinned memory with `non_blocking=True`": any(copies),
        "read values later, all at once": not all(copies),
    }
    how = ", ".join(way for way, fits in ways.items() if fits)
    return (
        f"The host waits for the device, {waited} {budget.per}{most}, and then launches into an empty queue: "
        f"remove these waits first ({how}, or keep the values on the device)"
    )
