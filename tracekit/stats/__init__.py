"""Statistics of comparisons: numbers in, verdicts out; independent of traces, runs and stores.

The unit is the run (a new process), summarized by one number per metric, such as the median of its step times
without a profiler. Effects are natural logarithms of ratios, which are independent of units and change sign
if the sides are exchanged.

    comparison   metrics, verdicts, and results of comparisons
    compare      compares runs: paired by block, unpaired, between sessions, or by known noise
    tests        exact comparison; several metrics; sequential tests
    effects      effects with standard errors: in blocks, between groups, between sessions
    decide       verdicts, their reasons, and how many more runs decide
    samples      blocks of two runs; time or cycles if clocks differ
    noise        noise of runs of the same code, and the smallest detectable effect
    history      steps in the sessions of a history
    search       search for the commit of a jump

A gate with escalation, `a` and `b` holding the values of each metric in the order of the blocks:

    for look in plan((5, 10, 20)):
        ...                                  # make runs until there are look.k blocks, in the sides' `order`
        found = with_holm([
            compare(metric, a[metric], b[metric], paired=True, alpha=look.alpha) for metric in metrics
        ])
        verdict = overall(one.verdict for one in found)
        if verdict is not Verdict.CANNOT_TELL:
            break
"""
