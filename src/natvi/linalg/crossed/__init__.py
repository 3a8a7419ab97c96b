"""The blocked pattern of crossed effects, and rows of data on it."""
