"""Earlier name of `components`, which plug-ins import."""
