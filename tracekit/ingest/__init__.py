"""Readers: from a raw trace to a normalized run in the store."""
