"""Photographs without torch: the shipped method's networks as ONNX graphs, and what stands around them in numpy."""
