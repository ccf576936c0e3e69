"""Hash-chained files that are only ever added to, and the signed head that says how far one goes."""
