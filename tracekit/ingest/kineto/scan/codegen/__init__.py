"""Numba source of the compiled decoder; imported only to compile it, never to load compiled code."""
