"""A model's page: how many users fit, where, and why."""
