"""Figures: pure functions from finished results to Plotly figures as plain dictionaries.

Figures contain no theme and no size; `charts.chart` adds both. Text is escaped here, since Plotly
interprets some HTML in labels.
"""
