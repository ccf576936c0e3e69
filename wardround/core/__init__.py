"""The contracts between components, and the few functions that all of them share. No algorithm lives here."""
