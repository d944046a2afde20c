"""The dataset: every combination of the grid as a row, its columns described once, its files."""
