"""Fuzz the readers with damaged and hostile inputs; see `python -m fuzz --help`."""
