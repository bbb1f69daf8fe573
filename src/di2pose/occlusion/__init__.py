"""Patches on pictures: textures, the two placement protocols, and the picture of a search."""
