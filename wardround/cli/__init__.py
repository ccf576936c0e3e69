"""The command line. Heavy imports happen inside commands, so that `wardround --help` answers at once."""
