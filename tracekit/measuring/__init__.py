"""Measurement of a program at a commit: new processes in separate worktrees, one value per metric.

    locks        folders and files that belong to a living process
    worktrees    checkouts of commits beside the user's tree, removed whatever happens
    submodules   those of a checkout, from the user's clones
    snapshot     the uncommitted state of the user's tree, as a checkout
    launcher     the small process that starts, times and outlives the measured one
    process      one command in a fresh process: wall time, peak memory, output
    program      what to measure and how to read it: a command, or `tracekit collect`
    metrics      the metrics that exist, and those of a stored run

One measurement of a command at a commit:

    with worktrees(store) as trees:
        made = program(("python", "train.py"), trees.repository)
        sample = measure(made, trees.add("HEAD~1"), scratch=trees.folder / "runs")
"""
