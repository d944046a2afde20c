"""Hosts for the report: the site engine and plain files. They compute nothing."""
