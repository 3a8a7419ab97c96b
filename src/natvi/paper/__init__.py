"""What only the paper's experiments need."""
