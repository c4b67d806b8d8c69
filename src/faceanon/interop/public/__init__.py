"""Public checkpoints of other people's networks: read, converted into a bundle, and written again."""
