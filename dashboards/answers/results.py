"""Names that plug-ins import from here; they are in `analysis_pages.results`."""

from ..analysis_pages.results import PageResults
from ..analysis_pages.results import format_name as named
from ..analysis_pages.results import format_number as some
from ..analysis_pages.results import show_answer as answer
from ..analysis_pages.results import show_nothing as nothing
from ..tables.html import first_rows

__all__ = ["PageResults", "answer", "first_rows", "named", "nothing", "some"]
