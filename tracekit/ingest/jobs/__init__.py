"""Find which files are one job: ranks, folders, captures of graphs."""
