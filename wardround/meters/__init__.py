"""What is added up over the rounds: traffic, energy."""
