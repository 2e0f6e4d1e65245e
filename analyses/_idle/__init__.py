"""Why devices idle and what the host's waits cost: behind `idle_gaps` and `sync_points`."""
