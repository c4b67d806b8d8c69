"""Networks without torch: graphs of onnxruntime, and what the processor is fast with."""
