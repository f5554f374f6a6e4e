"""Federated training of a digit classifier in Flower: plain, with secure aggregation, local."""
