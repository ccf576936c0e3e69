"""Images with masks, from public collections."""
