"""Pages that are generated: of any analysis, and of an answer with its figures and tables."""
