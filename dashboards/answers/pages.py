"""Names that plug-ins import from here; they are in `analysis_pages.pages`."""

from ..analysis_pages.pages import answer_page
from ..analysis_pages.pages import load_pages as registered

__all__ = ["answer_page", "registered"]
