"""Where the simulator's seconds come from: profiles, their fit, their provenance and error."""
