"""Programs that fork a process for everybody who connects to their socket: the other end of a test's orders."""
