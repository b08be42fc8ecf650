"""What one key may ask for: limits at the gateway."""
