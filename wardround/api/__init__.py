"""What Python programs and notebooks use, and the command line itself; `wardround.__all__` lists it."""
