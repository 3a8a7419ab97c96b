"""Mixed models as targets: the random effects, integrated out, drawn given the rest, or in standardised form (RVB)."""
