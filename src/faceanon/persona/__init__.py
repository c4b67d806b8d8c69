"""Persona, the method for photographs: numpy alone, on networks that onnxruntime or torch runs."""
