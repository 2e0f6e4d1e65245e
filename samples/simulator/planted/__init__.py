"""Programs with one planted cause each, beside a clean twin that lacks only that cause."""
