"""What the scripts of this folder share: texts, digits and small models."""
