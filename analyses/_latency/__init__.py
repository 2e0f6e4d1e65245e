"""Launch calls and their delays: behind `launch_latency`."""
