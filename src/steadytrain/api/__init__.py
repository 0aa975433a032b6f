"""The public functions that work on what was recorded: they find the run or incident, check arguments, and call the
room that does the work. They print nothing and decide nothing; the commands print what they return.
"""
