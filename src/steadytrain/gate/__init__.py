"""Judges what was recorded against a policy, for CI: pass or fail with reasons, and the result in the formats of CI
systems. The judgement is a pure function: it detects nothing itself, and unknown is never a pass.
"""
