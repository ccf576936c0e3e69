"""Privacy that can be checked: sums that nobody sees the parts of, and what is spent and could be learned."""
