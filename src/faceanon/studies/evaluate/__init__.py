"""The judge of anybody's pictures."""
