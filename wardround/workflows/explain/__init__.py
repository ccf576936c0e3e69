"""`explain` and `gaps` on one machine: sites make classifiers, exchange them and choose."""
