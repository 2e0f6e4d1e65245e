"""Parts of the page of runs."""
