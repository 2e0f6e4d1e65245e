"""Parts of the History page: metrics of each commit, tested by `tracekit.stats`."""
