"""Where rows come from and how they become numbers: sources, data sets, partitions, checks, preparation."""
