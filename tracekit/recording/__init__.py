"""Record workloads and programs with a collector, and store the recording as a run.

Collectors are plug-ins, loaded through the registry only.
"""
