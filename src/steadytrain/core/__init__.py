"""The nouns (``Window``, ``Symptom``, ``Incident``, ...), the user's error, levels, metric names, and how plug-ins are
found.

It imports no other room.
"""
