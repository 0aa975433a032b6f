"""One file per check of a preflight, found by walking this package.

A check looks at a :class:`~steadytrain.checks.subject.model_check.Subject`: a model with its optimizer and the first
batches of a script, before anything was learned. It answers with an ``Outcome``. Its docstring is its documentation:
first sentence, then ``Means``, ``Causes`` and ``Next`` (``steadytrain explain NAME``), and its fields are its
thresholds.

What checks share is in ``steadytrain.checks.subject``. Checks do not know each other.
"""
