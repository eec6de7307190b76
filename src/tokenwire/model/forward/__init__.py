"""The forward pass in numbers."""
