"""Load a folder with one trace with HolisticTraceAnalysis, and run one of its analyses or more.

load_hta.py FOLDER [breakdown | every]
"""

import json
import sys
import time
from contextlib import redirect_stdout

EVERY = (
    "get_temporal_breakdown",
    "get_idle_time_breakdown",
    "get_gpu_kernel_breakdown",
    "get_comm_comp_overlap",
    "get_cuda_kernel_launch_stats",
    "get_memory_bw_summary",
    "get_queue_length_summary",
)
"""Analyses of a rank that need nothing but the trace."""
_WITHOUT_FIGURES = {"get_memory_bw_summary", "get_queue_length_summary"}


def main() -> None:
    """Load and print."""
    with redirect_stdout(sys.stderr):  # it talks
        start = time.perf_counter()
        from hta.trace_analysis import TraceAnalysis

        imported = time.perf_counter()
        analysis = TraceAnalysis(trace_dir=sys.argv[1])
        loaded = time.perf_counter()
        figures = {"import_s": imported - start, "load_s": loaded - imported}
        figures["events"] = sum(len(analysis.t.get_trace(rank)) for rank in analysis.t.get_ranks())
        for name in {"breakdown": EVERY[:1], "every": EVERY}[sys.argv[2]] if sys.argv[2:] else ():
            start = time.perf_counter()
            getattr(analysis, name)(**({} if name in _WITHOUT_FIGURES else {"visualize": False}))
            figures[f"{name.removeprefix('get_temporal_').removeprefix('get_')}_s"] = (
                time.perf_counter() - start
            )
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
