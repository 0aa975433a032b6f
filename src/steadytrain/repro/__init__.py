"""Makes a standalone script that reproduces the fault of an incident, and verifies it in a fresh process.

The script needs torch alone and does not import steadytrain.

::

    launched again          cut                  own process            fresh process
    trail ──────────────► cone ──► programs ──► shrink ──► script ──► verify, variants ──► ISSUE.md
    every operation,      the birth and what    rows, shapes,
    its inputs            must be with it       digits
"""
