"""What may leave a site, in what precision, and at what cost."""
