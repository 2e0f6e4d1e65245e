"""Load a folder with one trace with HolisticTraceAnalysis; optionally compute the temporal breakdown.

load_hta.py FOLDER [breakdown]
"""

import json
import sys
import time
from contextlib import redirect_stdout


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
        if sys.argv[2:]:
            start = time.perf_counter()
            analysis.get_temporal_breakdown(visualize=False)
            figures["breakdown_s"] = time.perf_counter() - start
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
