"""The prior of a regression: chosen or read, in words, in files, and held against the data."""
