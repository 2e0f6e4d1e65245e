"""Figures: pure functions from finished results to Plotly figures as plain dictionaries.

A figure holds no theme and no size; `charts.chart` adds both. Text of traces is escaped here, since Plotly
reads some of HTML in labels.
"""
