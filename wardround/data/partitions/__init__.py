"""How one pool of rows becomes several sites, each with a degree of unlikeness."""
