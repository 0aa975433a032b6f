"""Checks before a training: of the model (``model``, needs torch) and of its data (``data``, does not)."""
