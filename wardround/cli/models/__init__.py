"""The commands for a model in use at one site: adapted to its patients, and watched."""
