"""What travels between coordinator and site: requests, replies, and how they become bytes."""
