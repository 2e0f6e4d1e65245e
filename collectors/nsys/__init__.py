"""Collector of Nsight Systems.

tool        the nsys of this machine: its version, and the options it takes
options     the options of a recording, in the words of that version
capture     run a program under nsys
export      from its report to SQLite, and what an export lacks
problems    what went wrong, in one line
measured    the process that nsys watches
collector   the plug-in
"""
