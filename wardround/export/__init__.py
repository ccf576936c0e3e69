"""Trained models for other programs: an ONNX file, a scikit-learn estimator, a page that calculates."""
