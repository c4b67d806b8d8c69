"""Terms of losses, a function each. A new one goes here; a stage weighs it, or a method returns it by name."""
