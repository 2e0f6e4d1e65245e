"""Statistics of comparisons: numbers in, verdicts out; nothing here knows a trace, a run or a store.

The unit is the run (a fresh process), summarized by one number per metric, such as the median of its
un-profiled step times. Effects are natural logarithms of ratios, so that they are the same in any unit and
turn around exactly when the sides do.

    comparison   what a comparison says: `Metric`, `Verdict`, `Comparison`
    compare      runs against runs: paired by block, unpaired, by known noise
    exact        counts and allocator peaks, which need no statistics
    effect       estimates with standard errors, for one metric or thousands at once
    decide       from an interval to a verdict
    reasons      the sentence that says why
    blocks       the order of runs, and which stored runs are pairs
    sequential   more runs until it can be told, without raising the false alarms
    multiple     several metrics in one gate; thousands of kernels to explore
    noise        sigma of a series from runs of the same code, and what it allows to detect
    clocks       time or cycles, when the clocks of the two sides differ
    bisection    on which side of a jump a commit lies
    steps        what a search asks for and finds
    search       which commit to measure next, until the jump is found

A gate with escalation, `a` and `b` holding the values of each metric in the order of the blocks:

    for look in plan((5, 10, 20)):
        ...                                  # make runs until there are look.k blocks, in the sides' `order`
        found = gate([
            compare(metric, a[metric], b[metric], paired=True, alpha=look.alpha) for metric in metrics
        ])
        verdict = overall(one.verdict for one in found)
        if verdict is not Verdict.CANNOT_TELL:
            break
"""
