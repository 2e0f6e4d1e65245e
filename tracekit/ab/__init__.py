"""Comparison of two commits: blocks of two runs in ABBA order, until the result is conclusive.

design     how many runs, which metrics, what counts as a change
sides      the two commits, and their worktrees
session    the loop: measure a block, test, stop or continue; independent of git and processes
state      results so far, stored so that an interrupted call can resume
keeping    stores one profile per side
surroundings    warnings about conditions of the machine that add noise
engine     combines all of these
report     result of `tracekit ab`
"""
