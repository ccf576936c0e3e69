"""What the commands do with a study: run, compare, tune, retrain, find partners, attack."""
