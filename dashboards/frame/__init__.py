"""The frame around every page: header with its pickers, menu, shortcuts."""
