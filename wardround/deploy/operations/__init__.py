"""What keeps a party running for years: services, figures for a monitor, copies of a home."""
