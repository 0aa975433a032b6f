"""The nouns (``Window``, ``Symptom``, ``Incident``, ...), the user's error, levels, how plug-ins are found, and the
private names of torch.

It imports no other room, and no torch before the script does.
"""
