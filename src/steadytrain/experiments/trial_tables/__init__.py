"""Trials that are one change: rows, in tables by what they change."""
