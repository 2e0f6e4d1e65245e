"""Renderers: they take finished tables and never compute."""
