"""Measure two commits against each other: blocks of two runs in ABBA order, until it can be told.

design     how many runs, which metrics, what counts as a change
sides      the two commits, and their worktrees
session    the loop: measure a block, look, stop or go on; it knows no git and no process
state      what was measured so far, kept in the store so that it can go on after an interrupt
keeping    one profile a side, kept in the store
surroundings    what makes the machine a poor witness
engine     all of it together
report     what `tracekit ab` says, in the shape its reports have
"""
