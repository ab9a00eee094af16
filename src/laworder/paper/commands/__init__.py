"""`laworder paper …`: a module for each command."""
