"""What a measured process runs: scripts by themselves, which a peer's own Python starts.

Each prints one line: a JSON object of what it measured inside of itself.
"""
