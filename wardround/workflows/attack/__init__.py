"""Attacks on a study of one's own, to see what a coordinator could learn."""
