"""The timeline's server side."""
