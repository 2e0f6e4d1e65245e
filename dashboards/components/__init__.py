"""Shared page components: charts, tiles, notes, findings, links."""
