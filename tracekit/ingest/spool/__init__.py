"""Decoded batches on disk: written part by part, read in order of time window by window."""
