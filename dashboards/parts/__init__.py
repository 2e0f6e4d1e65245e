"""Parts that pages are made of: charts, tiles, notes, findings, links."""
