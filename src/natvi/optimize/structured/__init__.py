"""Systems of structured precisions beyond the arrow."""
