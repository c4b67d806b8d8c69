"""The study of photographs: every figure that says whether real people's pictures are in good hands with a model."""
