"""Labeling functions: rules that vote for one class or abstain, a file for each kind."""
