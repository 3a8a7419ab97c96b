"""Linear models from data larger than memory."""
