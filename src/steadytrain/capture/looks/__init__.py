"""Looks at what the script does with its model, loss and data, in a few early steps and after a change.

A look reports rows of the table ``script``, and judges nothing.
"""
