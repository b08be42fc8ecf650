"""One loader per trace format, and what they share."""
