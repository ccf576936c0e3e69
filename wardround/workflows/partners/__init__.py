"""Finding partners: choose them, recommend them, compare the sites."""
