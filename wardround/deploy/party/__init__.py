"""What a site and a second server have in common: how they join a consortium, decide about studies, and connect."""
