"""Stored runs: metadata, tables, the store and its backends, verification."""
