"""Video -> 3D people through time: frames one after the other, who is who, and smoothing by certainty."""
