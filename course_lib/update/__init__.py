"""The last stage of a training step: gradients -> parameters."""
