"""Bundles: which networks they hold, whether these belong together, and where public ones come from."""
