"""What is kept at the moment of an incident, and what is said of it."""
