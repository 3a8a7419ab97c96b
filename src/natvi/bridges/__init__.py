"""Doors for those who come from other libraries, each in a file that needs the library."""
