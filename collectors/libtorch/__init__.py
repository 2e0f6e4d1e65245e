"""Level `libtorch`: run the exported module of a workload in a C++ program that Kineto records.

The program runs the same steps as Python does at other levels: the same random order of the same batch, the
same range names, the same optimizer. Two things differ: C++ has no fused or foreach optimizers, so each
parameter is updated by its own ops; and nothing is offloaded.

The process `prepare` exports the module and builds the program if needed; the collector then runs it.
"""
