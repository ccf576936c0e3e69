"""Questions to every site that are no training. One file a query, found by its name, with the terms of its answer."""
