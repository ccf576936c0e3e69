"""Places of the code that are made wrong on purpose, one at a time: the quick suite must notice each of them."""

from tests.mutations import consortium, figures, training

MUTATIONS = (*figures.MUTATIONS, *training.MUTATIONS, *consortium.MUTATIONS)
