"""A robust sum by two servers that never see an answer."""
