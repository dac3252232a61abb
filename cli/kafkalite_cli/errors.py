"""What the user is told when a command cannot do its work."""

import click


class Failure(click.ClickException):
    """A sentence in the user's terms, and exit code 1."""

    exit_code = 1

    def show(self, file: object = None) -> None:
        """Print it to standard error."""
        del file
        click.secho("Error: ", fg="red", bold=True, nl=False, err=True)
        click.echo(self.format_message(), err=True)
