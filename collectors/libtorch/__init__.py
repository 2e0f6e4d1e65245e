"""Level `libtorch`: a workload's module, exported, in a C++ program that Kineto records.

The program takes the steps that Python takes at other levels: the same random order of the same batch, ranges
of the same names, the same optimizer. Two things differ: C++ has no fused or foreach optimizers, so each
parameter is updated by ops of its own; and nothing is offloaded.

`prepare` is a process that exports the module and, once, builds the program; `recorded` then runs it.
"""
