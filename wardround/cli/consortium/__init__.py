"""What `wardround coordinator` does about studies and how it tells how they stand."""
