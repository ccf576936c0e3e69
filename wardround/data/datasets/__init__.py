"""Named data sets: real ones read from a folder, scikit-learn's, and generators with a known truth."""
