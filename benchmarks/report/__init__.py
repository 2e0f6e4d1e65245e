"""From costs to figures, a JSON document, and the page that is written from it."""
