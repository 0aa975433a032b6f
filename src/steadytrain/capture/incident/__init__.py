"""Builds an incident's bundle and the message that reports it.

``detection`` decides when a finite symptom becomes an incident.
"""
