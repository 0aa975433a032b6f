"""What a check of a model is given, and the tools that several of them share."""
