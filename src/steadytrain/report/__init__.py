"""Turns recorded values into a report value, and renders it as text or HTML.

A renderer computes nothing, and a report never takes silence for health.
"""
