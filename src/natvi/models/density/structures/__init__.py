"""Gaussians that climb, one file for each pattern."""
