"""Photographs without torch: the networks of the shipped method as ONNX graphs, and what stands around them in numpy."""
