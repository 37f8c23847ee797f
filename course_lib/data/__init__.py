"""What the model reads: the first stage of the loop."""
