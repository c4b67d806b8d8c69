"""The study of occlusion: what glasses, masks and hands do to a method, and it to them."""
