"""Models with crossed or nested grouping factors."""
