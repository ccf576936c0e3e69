"""Ways to judge who would be a good partner. One file a choice; the registry finds it by its name."""
