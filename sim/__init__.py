"""The fleet and its engines on one clock."""
