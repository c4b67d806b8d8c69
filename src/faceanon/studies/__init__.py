"""Studies: what measures a finished model from end to end, each in a folder of its own."""
