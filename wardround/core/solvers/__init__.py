"""Where a loss is least: Newton steps by Fisher scoring, and quasi-Newton steps, compiled."""
