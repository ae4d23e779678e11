"""What earlier engines left: taken over, or removed."""
