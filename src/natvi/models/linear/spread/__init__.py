"""Linear models whose rows are read in pieces, or lie in many processes, fitted exactly."""
