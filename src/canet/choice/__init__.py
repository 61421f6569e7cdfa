"""Choose a model under simulated shift: candidates, shifts of the training data, and a rule."""
