"""Documentation pages generated from metadata while the site is built."""
