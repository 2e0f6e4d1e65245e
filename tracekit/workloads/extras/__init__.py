"""Workloads that other libraries bring: their own models from their configurations, with random weights.

They are registered by `providers` where the library is installed. Listing or naming one imports the library,
so that one which cannot be imported is told before anything runs.
"""
