"""What the tests of survival share."""
