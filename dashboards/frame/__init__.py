"""Frame around every page: header with pickers, menu, shortcuts."""
