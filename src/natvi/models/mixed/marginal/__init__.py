"""Random effects integrated out: the exact marginal of the shared parameters, drawn from."""
