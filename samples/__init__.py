"""Small recorded traces, and the simulator of traces with planted truths."""
