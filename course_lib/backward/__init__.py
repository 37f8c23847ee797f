"""Loss to gradients: the fourth stage of the loop, by hand."""
