"""Every place in Python and torch where steadytrain hooks in: launching a script, the import hook, patches and module
hooks.

A hook reports an event and decides nothing.
"""
