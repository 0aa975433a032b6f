"""The failing step again, operation by operation: which one made the first bad value, and where it stands."""
