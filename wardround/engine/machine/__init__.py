"""What the simulation runs on: devices of this machine, several hosts, and how much memory there is."""
