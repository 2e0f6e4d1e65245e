"""Grids, blocks and occupancy limits, for `launch_config`."""
