"""Imports from the browser: slices arrive, a process of its own imports them, a panel follows it."""
