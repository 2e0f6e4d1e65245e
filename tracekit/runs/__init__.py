"""Stored runs: metadata, tables, store and what is done with it."""
