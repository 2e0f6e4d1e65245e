"""Join what a profiler recorded apart: enclosing intervals, calls and what they launched, steps, phases.

Works on one process's parked tables, a window at a time in order of time; what is still open at a border is
carried over, so that windows never show in the result.
"""
