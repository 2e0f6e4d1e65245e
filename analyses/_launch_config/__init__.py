"""Grids, blocks and what fits on a multiprocessor: behind `launch_config`."""
