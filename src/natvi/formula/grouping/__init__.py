"""Grouping factors: crossed, nested, and combinations of columns."""
