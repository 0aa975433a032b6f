"""One file per trainer library: it starts a watch when a fit begins and closes it when the fit ends.

An integration decides and judges nothing, and no other room imports its library.
"""
