"""Identity of generated kernels: the hash of a source without the name that the compiler gave it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.schema import C

if TYPE_CHECKING:
    import pandas as pd

    from tracekit.runs.run import Run


def kernels(run: Run) -> pd.DataFrame:
    """Return `compiled_kernels` with plain strings, in order of graph and position."""
    table = run.table("compiled_kernels")
    texts = [name for name in table.columns if name != C.POSITION]
    ordered = table.astype(dict.fromkeys(texts, object)).sort_values([C.GRAPH, C.POSITION])
    return ordered.reset_index(drop=True)


def kernel_label(number: int) -> str:
    """Return the value of `graph` for a graph whose key in Inductor's cache is unknown.

    Example:
        >>> kernel_label(3), is_unkeyed(kernel_label(3)), is_unkeyed("f5uwh3")
        ('#3', True, False)
    """
    return f"#{number}"


def is_unkeyed(graph: str) -> bool:
    """Return whether a value of `graph` is one of `kernel_label`."""
    return graph.startswith("#")


def are_known(run: Run) -> bool:
    """Return whether the sources of any generated kernels are known."""
    import pyarrow.compute as pc

    if run.rows("compiled_kernels"):
        return True
    return bool(run.arrow("host_intervals", columns=[], where=pc.field(C.KERNEL_HASH).is_valid()).num_rows)


def identities(run: Run, names: pd.Series, hashes: pd.Series) -> pd.Series:
    """Return the identity of the kernel that each op of the host is or launches; missing if unknown.

    It is the hash of the source without generated names, by the recorded hash of the kernel or by its name,
    if all kernels of that name have one source. Else it is the recorded hash, which depends on the name.

    Args:
        run: The run.
        names: Names of ops.
        hashes: Their `kernel_hash`.
    """
    sources = kernels(run).dropna(subset=[C.SOURCE_HASH])
    by_hash = _single_sources(sources.dropna(subset=[C.KERNEL_HASH]), C.KERNEL_HASH)
    by_name = _single_sources(sources, C.NAME)
    recorded = hashes.astype(object)
    identity = recorded.map(by_hash).astype(object)
    return identity.fillna(names.astype(object).map(by_name).astype(object)).fillna(recorded)


def _single_sources(sources: pd.DataFrame, key: str) -> dict[str, str]:
    """Return the source hash of each value that has only one."""
    distinct = sources.drop_duplicates([key, C.SOURCE_HASH]).drop_duplicates(key, keep=False)
    return dict(zip(distinct[key], distinct[C.SOURCE_HASH], strict=True))
