"""Servers in deployment files: found in documents and scripts, with what each is started on.

``shell`` reads scripts, ``documents`` reads YAML, ``resources`` reads what a container gets, ``found`` puts servers
together. Nothing here knows a flag of a server: a start command goes to the reader of the command line as it is.
"""
