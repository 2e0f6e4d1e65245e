"""Throw damaged and hostile inputs at the readers; see `python -m fuzz --help`."""
