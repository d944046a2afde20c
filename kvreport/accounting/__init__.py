"""Bytes and counts from shapes: pure arithmetic, arrays in, arrays out."""
