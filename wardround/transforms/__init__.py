"""What happens to a message on its way. One file a transform; the registry finds it by its name."""
