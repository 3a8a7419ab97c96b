"""What all formula models share: the response, priors, options, tables."""
