"""Commands about who may be believed: the authority, partners' keys, the own key."""
