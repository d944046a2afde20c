"""Readers of model files."""
