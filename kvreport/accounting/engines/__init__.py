"""One module per engine family: how it turns a model's caches into blocks of its pool."""
