"""The files that are measured: amplified from small ones, made once and kept.

`bases` are the small ones; `traces` and `exports` amplify them; `pieces` are a trace's forms for parsers that
want another; `runs` are imported.
"""
