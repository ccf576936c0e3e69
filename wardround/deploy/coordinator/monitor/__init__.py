"""A study that asks the sites whether the model of an earlier one ages: what the coordinator asks and concludes."""
