"""Experiments: compare measurements of commits, versions and configurations."""
