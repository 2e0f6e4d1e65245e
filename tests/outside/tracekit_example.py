"""An analysis of an outside package: the longest kernel."""

from __future__ import annotations

from tracekit.analysis import Analysis, Basis, Bottleneck, Column, Finding, Result, Rule, Severity, TableSpec


def compute(run) -> Result:
    kernels = run.table("device_intervals", columns=["row_id", "kind", "name", "dur_ns"])
    longest = kernels[kernels["kind"] == "kernel"].nlargest(1, "dur_ns")
    if longest.empty:
        return Result(notes=("no kernels in this capture: record on a GPU",))
    table = longest[["name", "dur_ns"]].astype({"name": str}).reset_index(drop=True)
    finding = Finding(
        "one_kernel",
        Severity.INFO,
        f"{table['name'][0]} is the longest kernel",
        "look at it first",
        int(table["dur_ns"][0]),
        Basis.ESTIMATED,
        evidence={"device_intervals": [int(longest["row_id"].iloc[0])]},
    )
    return Result({"longest": table}, (finding,))


ANALYSIS = Analysis(
    name="longest_kernel",
    title="Longest kernel",
    question="Which single kernel took longest?",
    definition="the kernel with the longest duration",
    tables=(
        TableSpec(
            "longest", "The longest", (Column("name", "", "kernel"), Column("dur_ns", "ns", "duration"))
        ),
    ),
    sources=("an example",),
    order=900,
    compute=compute,
    rules=(
        Rule(
            "one_kernel",
            "a kernel takes at least {min_share} of the kernel time",
            "an example",
            bound=Bottleneck.COMPUTE,
            thresholds={"min_share": 0.2},
        ),
    ),
)
