"""What people type: predict, demo, doctor, export."""
