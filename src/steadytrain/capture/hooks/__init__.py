"""Where we stand in Python and in torch: the launch of a script, the import hook, patches and hooks."""
