"""The one exception for what a user can cause and mend."""


class UserError(Exception):
    """Bad input: what was found and expected, and how to fix it, in one or two lines.

    The command line prints it without a traceback and exits with code 2.
    """

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(problem, fix)
        self.problem = problem
        self.fix = fix

    def __str__(self) -> str:
        """Both lines, as they are printed."""
        return f"{self.problem}\n{self.fix}"
