"""A standalone script for the fault of an incident: captured, cut out, made small, verified in a fresh process.

::

    launched again          cut                  own process            fresh process
    trail ──────────────► cone ──► programs ──► shrink ──► script ──► verify, variants ──► ISSUE.md
    every operation,      the birth and what    rows, shapes,
    its inputs            must be with it       digits

``making`` is the whole of it for a NaN or Inf; ``captured`` is the side that runs in the launched script, ``working``
the one that makes the program small, ``compiled`` the one for what only compiled code does. For a loss that rises the
same three are ``rising``, ``stepping`` (with ``step_capture``) and ``rising_working``, over the values of ``training``
and ``rise``. The script that comes out needs torch alone and knows nothing of steadytrain.
"""
