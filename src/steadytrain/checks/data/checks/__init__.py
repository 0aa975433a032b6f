"""One file per check of data.

Checks do not know each other; ``checks.data.data_check`` holds their contract.
"""
