"""Crossed models from data frames that need never be in memory together."""
