"""The one exception whose text is meant for the person at the keyboard."""


class UserError(ValueError):
    """A mistake in what the user gave: one sentence that names the value, the valid ones and the mend.

    The command line prints the sentence and exits with 2; notebooks show it as it is.
    """
