"""The zoo: every method trained and tested alike, and one table of all."""
