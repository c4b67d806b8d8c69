"""Networks and methods for other programs, and from them: public checkpoints, and ONNX graphs."""
