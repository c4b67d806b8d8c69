"""Attacks on one's own anonymity, each in a file of its own; `catalog` lists them, `runner` runs them."""
