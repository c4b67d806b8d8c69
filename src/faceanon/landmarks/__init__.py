"""Where eyes, brows, nose and mouth of a face are: the mesh that ships, and drawings made from its points."""
