"""A step while it forms: followed, looked at by the gate, stopped or let through."""
