"""Mixed models from data larger than memory, group by group."""
