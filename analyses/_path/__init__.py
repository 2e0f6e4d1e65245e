"""The chain that bounds a step: behind `critical_path`."""
