"""From what was recorded to what a person reads: a plain ``Report`` value, and renderers that only draw it."""
