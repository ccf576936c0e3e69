"""What a clinician asks of a prediction model: is the risk right, whom does it flag, does it help, what it uses."""
