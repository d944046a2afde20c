"""Pages: contexts, tables, charts and templates, for any site engine."""
