"""What federated learning is compared with: each site alone, and all rows in one place."""
