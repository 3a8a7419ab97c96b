"""The deterministic loop: an exact bound climbed until it rises no more."""
