"""Mixed models whose groups lie in many processes, or are read in pieces, fitted exactly."""
