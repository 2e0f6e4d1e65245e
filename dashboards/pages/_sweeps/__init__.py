"""Parts of the Sweeps page."""
