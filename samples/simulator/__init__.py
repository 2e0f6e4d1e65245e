"""Simulated traces: a program is described, its timeline follows exactly, and a trace of it can be written.

The numbers an analysis must find are planted, so they are known without another reader of the trace.
"""

from samples.simulator.events import Allocation, DeviceEvent, HostEvent, Kind
from samples.simulator.kineto import Clock, trace, write
from samples.simulator.program import Program

__all__ = ["Allocation", "Clock", "DeviceEvent", "HostEvent", "Kind", "Program", "trace", "write"]
