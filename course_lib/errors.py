"""The one exception whose text is meant for the person at the keyboard."""


class UserError(ValueError):
    """A mistake in what the user gave: one sentence names the value, the valid ones and the mend.

    The command line prints the sentence and exits with 2; notebooks show it as it is.
    """

    def _render_traceback_(self) -> list[str]:
        """Show the sentence alone in a notebook (IPython asks for this): the frames say nothing."""
        return [f"{type(self).__name__}: {self}"]
