"""Tools: export, convert, fetch, report, serve and demo; only commands import them."""
