"""What an incident keeps, and the message that reports it.

When a finite symptom becomes an incident is decided in ``detection``.
"""
