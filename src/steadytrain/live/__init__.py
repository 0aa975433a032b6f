"""Follows a run while it trains: what is new is read and kept in bounded memory, and drawn for a terminal or served as
pages. It measures and judges nothing, and writes nothing into a run folder.
"""
