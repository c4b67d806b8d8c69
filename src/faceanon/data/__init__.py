"""Training data: drawn faces (`synthetic`), a folder of photographs (`folder`), prepared photographs (`prepared`)."""
