"""How fast a round is, here and elsewhere: the same work done by this project and by its peers."""
