"""The practitioner's method: the ten steps of ``debug`` in their order, and the five ticks of ``checklist``. Both read
what other commands found; only ``debug`` calls them, and this room itself measures and concludes nothing.
"""
