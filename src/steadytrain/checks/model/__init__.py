"""One file per preflight check of a model.

What several checks share is in ``checks.subject``; checks do not know each other.

A check inspects a :class:`~steadytrain.checks.subject.model_check.Subject`: a model with its optimizer and the first
batches of a script, before any training. It returns an ``Outcome``. Its fields are its thresholds. Its docstring is its
documentation: first sentence, then ``Means``, ``Causes`` and ``Next`` (``steadytrain explain NAME``).
"""
