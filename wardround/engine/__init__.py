"""What drives a study: the server loop, the compiled simulation, checkpoints, and the registry of components."""
