"""Export runs to formats of other tools, and query them with SQL."""
