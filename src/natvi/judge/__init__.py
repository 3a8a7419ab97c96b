"""How far an answer can be trusted: thresholds, the check of a shape, the ladder of methods, the model against data."""
