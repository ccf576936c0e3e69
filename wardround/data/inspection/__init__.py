"""What a look at the rows shows before anything is trained: columns, and what may be wrong with them."""
