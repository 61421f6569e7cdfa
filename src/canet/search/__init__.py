"""Search of settings on validation data, with Optuna."""
