"""Attacks on studies, to see what protects: what a curious coordinator could learn, and what bad sites could spoil."""
