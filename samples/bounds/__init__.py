"""Recordings of small programs whose bound is known by construction, with the times that remedies take."""
