"""Trials that make one change, as rows in tables by subject."""
