"""Proof kit: record on a real GPU and check what tracekit claims about its numbers.

`recipes` says what is recorded, `programs` are the small programs of some recipes, `processes` runs each
recipe in its own process, `claims` and `judges` judge the runs by `evidence` from their tables, `machine`
describes the machine, `archive` packs what came out without names of the machine, and `kit` does all of it.
`docs/gpu.md` is the manual.
"""
