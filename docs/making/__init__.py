"""The pages of the documentation that are made of metadata while the site is built."""
