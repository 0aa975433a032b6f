"""Files on disk: run folder, tables, retention, incident bundles, tapes, redaction, SQL.

It knows no hook, no detector and no renderer.
"""
