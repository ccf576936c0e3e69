"""With whom to train: what each partner's data bring, what that earns it, and how far its share is diluted."""
