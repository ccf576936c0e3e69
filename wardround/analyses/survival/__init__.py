"""Survival analyses, and what they share: a site's rows, the first question to all sites, the words of the answer."""
