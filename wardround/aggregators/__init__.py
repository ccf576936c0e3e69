"""How the answers of the sites become one. One file an aggregator; the registry finds it by its name."""
