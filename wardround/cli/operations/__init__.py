"""Commands and output for whoever runs a party as a service."""
