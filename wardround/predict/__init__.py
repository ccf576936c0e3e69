"""Models in use: predictions for new patients, what is behind them, and what became of them."""
