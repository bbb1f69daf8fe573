"""What people type: predict, demo, doctor, licences."""
