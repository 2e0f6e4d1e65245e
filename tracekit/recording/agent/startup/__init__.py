"""Folder for PYTHONPATH of recorded programs: Python imports its `sitecustomize` before the program."""
