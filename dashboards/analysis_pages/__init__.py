"""Generated pages: for any analysis, and for answers with figures and tables."""
