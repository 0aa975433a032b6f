"""What a model check is given (``Subject``), and the tools that several checks share.

No check lives here.
"""
