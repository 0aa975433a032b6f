"""Inspects how the script uses its model, loss and data, in a few early steps and after each change.

A look (one inspection) reports rows of the table ``script``. It judges nothing. Some mistakes are read in the source
(``script_reading``).
"""
