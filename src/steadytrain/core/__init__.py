"""The nouns, their errors, levels and metric names, and what all kinds of plug-ins share. Everything stands on it."""
