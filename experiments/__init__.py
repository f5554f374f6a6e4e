"""The paper's experiments: studies, data sets, trained weights, and the demos."""
