"""Training data: a folder of photographs (`folder`), prepared photographs (`prepared`)."""
