"""Collector of Nsight Systems.

`collector` is the plug-in: it runs nsys and reads its SQLite export. `tool` finds nsys, builds its commands
and explains its errors, and `measured` is the process that nsys watches.
"""
