"""From pixels to people. Read `pipeline.py` first."""
