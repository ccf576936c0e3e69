"""The search for labeling functions at the sites: candidates from sums, how useful each seems, which is shown next."""
