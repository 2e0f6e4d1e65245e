"""Launch calls and their delays, for `launch_latency`."""
