"""Several columns together: covariance, correction for covariates, principal components."""
