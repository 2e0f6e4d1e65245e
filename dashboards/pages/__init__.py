"""Hand-written pages; each module defines one `PAGE`."""
