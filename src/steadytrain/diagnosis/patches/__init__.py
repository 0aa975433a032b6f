"""Patches of a script: from its text and a diagnosed cause to the mended text, one file for each kind of change. Pure.

A recipe edits only where the syntax tree leaves no doubt, and runs nothing. ``table`` says which recipes mend a cause.
"""
