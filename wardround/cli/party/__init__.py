"""Commands of those who connect to a coordinator: sites and second servers."""
