"""Mixed models."""
