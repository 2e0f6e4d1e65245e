"""Names of the counters with the times of the thread that runs the steps, as the scheduler counts them."""

from __future__ import annotations

from typing import Final

SCHEDULER: Final = "scheduler"
STEP_THREAD_RAN: Final = "step_thread_ran_ns"
STEP_THREAD_WAITED: Final = "step_thread_waited_ns"
