"""Parts of the page that compares two runs; every number is `tracekit.diff`'s."""
