"""Parts of the page of history: what runs of each commit measured, judged by `tracekit.stats`."""
