"""Videos: one stranger a track, and back from the written file."""
