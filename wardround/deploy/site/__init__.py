"""The site's side of a deployed study."""
