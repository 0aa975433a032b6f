"""The pages of `steadytrain ui`: requests to answers, for runs below one folder. Nothing is written, and no request
goes to another host.
"""
