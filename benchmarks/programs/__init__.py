"""Standalone scripts that measured processes run, some with a peer's Python.

Each prints one line: a JSON object of the figures it measured.
"""
