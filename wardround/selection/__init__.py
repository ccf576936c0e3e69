"""Selection: for which patients of a site another site's classifier knows more, by a threshold or by rules in words."""
