"""The HTML site, for any site engine: a drawing kit, one module per page type, and the build."""
