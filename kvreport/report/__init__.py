"""The first edition's addresses of what chapters import, for one release more."""
