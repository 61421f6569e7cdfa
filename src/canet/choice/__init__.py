"""Choose a model under simulated shift: candidates, shifts made of the training data, and a rule."""
