"""The fifth stage of a training step: many gradients -> one."""
