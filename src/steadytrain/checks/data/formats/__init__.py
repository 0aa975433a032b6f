"""One file per format of data.

Formats do not know each other; ``checks.data.data_check`` holds their contract.
"""
