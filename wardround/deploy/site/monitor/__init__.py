"""A study that asks whether the model of an earlier one ages: what a site reads for it, approves and answers."""
