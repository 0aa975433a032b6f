"""Everything that looks into a live training process. It records and guards; it does not judge."""
