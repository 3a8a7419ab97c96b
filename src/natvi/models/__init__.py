"""Models that write the target for you: formula in, posterior out."""
