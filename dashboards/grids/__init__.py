"""Grids: tables of results in the browser, formatted by the rules of the command line."""
