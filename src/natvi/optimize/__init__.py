"""Rules that turn directions into steps."""
