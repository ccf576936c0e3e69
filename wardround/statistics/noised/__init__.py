"""What is worked out from sums under the noise of [privacy], with intervals and tests that include it."""
