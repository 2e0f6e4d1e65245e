"""Collect: run a workload or a program under a collector and put what it recorded into the store.

Collectors are plug-ins, reached through the registry only.
"""

from tracekit.collecting.keeping import KEPT_TRACE
from tracekit.collecting.own import collect_program
from tracekit.collecting.recording import Collector, Progress, Recording, silent
from tracekit.collecting.request import Program, Request
from tracekit.collecting.workload import DEFAULT_COLLECTOR, collect, command, decide

__all__ = [
    "DEFAULT_COLLECTOR",
    "KEPT_TRACE",
    "Collector",
    "Program",
    "Progress",
    "Recording",
    "Request",
    "collect",
    "collect_program",
    "command",
    "decide",
    "silent",
]
