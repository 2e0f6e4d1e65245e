"""Link the rows of a trace: enclosing intervals, launching calls, steps, phases.

Works on the spooled tables of one trace, window by window. Intervals that are open at a border are carried
over, so the result does not depend on windows.
"""
