"""One module per page type."""
