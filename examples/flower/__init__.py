"""Federated training of a digit classifier in Flower: unmasked, masked, local."""
