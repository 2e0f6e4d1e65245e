"""Earlier names of `analysis_pages`, which plug-ins import."""
