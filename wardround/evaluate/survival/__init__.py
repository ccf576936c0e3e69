"""How good predictions of survival are: order, distance and calibration, with censored patients accounted for."""
