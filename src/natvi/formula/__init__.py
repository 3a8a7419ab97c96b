"""Formulas and tables: from text and a data frame to columns, and the recipe that rebuilds them."""
