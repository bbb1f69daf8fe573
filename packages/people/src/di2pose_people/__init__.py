"""Rendered people: dressed adults in real motion, with exact 3D, as training and test data."""

COMMANDS = {
    "people render": ("di2pose_people.render:render", "render dressed people in real motion, with exact 3D"),
    "people features": ("di2pose_people.features:people_features", "render people straight into cached features"),
}
"""Commands of `di2pose` that this distribution adds (entry point `di2pose.commands`)."""
