"""Models that mark what is on an image, pixel by pixel."""
