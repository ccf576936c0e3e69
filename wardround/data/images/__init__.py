"""Images as they lie at a hospital: folders of files, their labels, and how pixels become what a model sees."""
