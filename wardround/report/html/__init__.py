"""The frame of a page: markup, style, colours, charts."""
