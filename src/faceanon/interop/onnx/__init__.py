"""Methods as ONNX graphs: written, and run without torch's modules."""
