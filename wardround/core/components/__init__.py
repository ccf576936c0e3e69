"""What a component is made of and known by: its settings, its recipe, its terms, its package."""
