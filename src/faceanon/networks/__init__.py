"""Layers and networks; those of public projects have the keys and shapes of the public checkpoints."""
