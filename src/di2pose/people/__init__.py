"""Rendered people: dressed adults in real motion, before a random camera, with exact 3D joints and visibility."""
