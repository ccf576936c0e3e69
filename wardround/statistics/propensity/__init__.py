"""Who is treated, and what the treatment does once that is allowed for."""
