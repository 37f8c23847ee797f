"""Problem to logits: the second stage of the loop."""
