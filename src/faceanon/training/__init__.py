"""Training from the command line: its trainer and callbacks, how it stops, is resumed and is guarded."""
