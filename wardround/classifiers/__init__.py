"""Classifiers that sites exchange whole: any kind, as a checked ONNX file with its preparation inside."""
