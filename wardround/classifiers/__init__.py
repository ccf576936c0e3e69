"""Classifiers that sites exchange whole: any kind, as an ONNX file with its preparation inside, checked before it runs."""
