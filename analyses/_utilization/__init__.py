"""Parts of `utilization`."""
