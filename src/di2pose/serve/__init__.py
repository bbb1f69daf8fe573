"""The page and the service: `di2pose serve`."""
