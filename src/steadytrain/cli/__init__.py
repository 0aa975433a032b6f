"""The command line: one file per command, loaded when its command is called.

A command parses its options, calls another room and prints the result; it computes nothing.
"""
