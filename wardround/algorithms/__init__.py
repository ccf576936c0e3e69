"""How sites learn together. One file an algorithm; the registry finds it by its name."""
