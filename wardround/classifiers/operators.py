"""What a classifier from another site may consist of: operators that compute row by row and end by themselves.

No loop, no branch, no other graph inside, nothing that makes large tensors out of small ones, nothing random, nothing
that reads files. Support vector machines are missing on purpose: their file holds patients' rows.
"""

ML = "ai.onnx.ml"
OPSETS = {"": range(9, 23), ML: range(1, 5)}
"""Versions of the operator sets that are read."""
ALLOWED = {
    "": frozenset(
        {
            *(
                "Abs",
                "Add",
                "And",
                "ArgMax",
                "ArgMin",
                "BatchNormalization",
                "Cast",
                "Clip",
                "Concat",
                "Constant",
                "Div",
            ),
            *(
                "Dropout",
                "Elu",
                "Equal",
                "Erf",
                "Exp",
                "Flatten",
                "Floor",
                "Gather",
                "GatherElements",
                "Gemm",
                "Greater",
            ),
            *("GreaterOrEqual", "Identity", "IsInf", "IsNaN", "LeakyRelu", "Less", "LessOrEqual", "Log", "LogSoftmax"),
            *(
                "MatMul",
                "Max",
                "Mean",
                "Min",
                "Mul",
                "Neg",
                "Not",
                "Or",
                "Pow",
                "Reciprocal",
                "ReduceMax",
                "ReduceMean",
            ),
            *("ReduceMin", "ReduceSum", "Relu", "Reshape", "Round", "Selu", "Shape", "Sigmoid", "Sign", "Slice"),
            *(
                "Softmax",
                "Softplus",
                "Split",
                "Sqrt",
                "Squeeze",
                "Sub",
                "Sum",
                "Tanh",
                "Transpose",
                "Unsqueeze",
                "Where",
            ),
            "Xor",
        }
    ),
    ML: frozenset(
        {
            *("ArrayFeatureExtractor", "Binarizer", "FeatureVectorizer", "Imputer", "LabelEncoder", "LinearClassifier"),
            *("LinearRegressor", "Normalizer", "OneHotEncoder", "Scaler", "TreeEnsembleClassifier"),
            "TreeEnsembleRegressor",
        }
    ),
}
HOLDS_PATIENTS = frozenset({"SVMClassifier", "SVMRegressor"})
REPEATS = frozenset({"Loop", "Scan", "If", "SequenceMap"})
