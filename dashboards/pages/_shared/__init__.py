"""Parts that several pages about time share."""
