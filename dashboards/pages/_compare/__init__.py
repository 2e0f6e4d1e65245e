"""Parts of the Compare page; every number comes from `tracekit.diff`."""
