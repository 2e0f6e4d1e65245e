"""The checks of `integrity`."""
