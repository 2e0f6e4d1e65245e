"""Graded access for agents: traces of known cause, clients that diagnose them, and a table of grades."""
