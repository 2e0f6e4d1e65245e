"""Level `libtorch`: a workload's module, exported, in a C++ program that Kineto records.

`prepare` is a process that exports the module and, once, builds the program; `recorded` then runs it.
"""
