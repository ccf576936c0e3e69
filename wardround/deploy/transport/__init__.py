"""How bytes reach a site; the only room that imports the federated runtime."""
