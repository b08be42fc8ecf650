"""Whether a request may join the replica that was chosen for it."""
