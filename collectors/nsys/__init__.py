"""Collector of Nsight Systems.

`tool` finds nsys and builds its commands, `export` runs them and reads the SQLite export, `measured` is the
process that nsys watches, and `collector` is the plug-in.
"""
