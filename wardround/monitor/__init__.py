"""Models watched over time: do inputs drift, are risks still right, and is that more than chance?"""
