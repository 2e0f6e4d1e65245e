"""Analyses: one module each, a pure function from a run to tables and findings.

`sources` of each `ANALYSIS` names the work that its numbers follow; TorchBench is that of Hao et al., 2023.

Example:
    >>> import tracekit
    >>> run = tracekit.open("latest")  # doctest: +SKIP
    >>> tracekit.analyze(run, "kernels").tables["families"].head(10)  # doctest: +SKIP
    >>> tracekit.compare(tracekit.open("latest~1"), run, "h2d_copies").findings  # doctest: +SKIP
"""
