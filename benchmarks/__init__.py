"""Benchmarks against peers, side by side in one run: `python -m benchmarks NAME`."""
