"""A standalone script for the fault of an incident: captured, cut out, made small, verified in a fresh process.

::

    launched again          cut                  own process            fresh process
    trail ──────────────► cone ──► programs ──► shrink ──► script ──► verify, variants ──► ISSUE.md
    every operation,      the birth and what    rows, shapes,
    its inputs            must be with it       digits

``making`` is the whole of it; ``captured`` is the side that runs in the launched script, ``working`` the one that makes
the program small. The script that comes out needs torch alone and knows nothing of steadytrain.
"""
