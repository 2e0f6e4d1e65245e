"""Backends of stores, which add and remove runs atomically: local folders, and object storage."""
