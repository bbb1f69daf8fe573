"""Other ways to do it, each a model kind of its own on the same features: for comparison."""
