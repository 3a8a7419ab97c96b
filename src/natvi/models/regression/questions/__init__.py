"""What is asked of a fitted regression beside its tables: averages, comparisons, whole groups left out."""
