"""The upper rungs of the ladder: a flow on the whitened Gaussian, and NUTS with start and metric from the fit."""
