"""Data that need not be in memory together: batches of rows, batches of whole groups, and what a visit to them does."""
