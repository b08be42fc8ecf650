"""What a run leaves: tables, summary, and the definition of every number."""
