"""The command `laworder`: looks a command up in the table, fills in its typed config, runs it."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence

from laworder._version import __version__
from laworder.cli.arguments import Invocation, parse_arguments
from laworder.cli.help import command_help, overview
from laworder.cli.table import COMMANDS, Command, find
from laworder.config import build
from laworder.console import say
from laworder.errors import UserError
from laworder.presets import annotated_yaml, read_preset, read_yaml

USER_ERROR = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code is 0, 1 (done, with complaints), 2 (user error), 130 or 143 (stopped)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        return dispatch(arguments)
    except UserError as error:
        if "--debug" in arguments:
            traceback.print_exc()
        sys.stderr.write(f"laworder: {error}\n")
        return USER_ERROR
    except KeyboardInterrupt:
        sys.stderr.write("laworder: interrupted\n")
        return 130
    except BrokenPipeError:
        # The reader of our output went away (`laworder --help | head`): nobody is left to tell.
        sys.stderr.close()
        return 141


def dispatch(arguments: Sequence[str]) -> int:
    """Find the command that the words name and run it."""
    words = [a for a in arguments if a != "--debug"]
    if not words or words[0] in ("-h", "--help", "help"):
        say(overview(COMMANDS))
        return 0
    if words[0] == "--version":
        say(f"laworder {__version__}")
        return 0
    command, rest = find(words)
    module = command.load()
    invocation = parse_arguments(command.name, module.Config, rest)
    if invocation.help:
        say(command_help(command, module.Config))
        return 0
    return run(command, invocation)


def run(command: Command, invocation: Invocation) -> int:
    """Resolve preset, file and flags (the later wins) into a config; print the plan or carry it out."""
    module = command.load()
    values: dict[str, object] = {}
    if invocation.preset is not None:
        values |= read_preset(command.name, invocation.preset)
    for path in invocation.config_files:
        values |= read_yaml(path)
    config = build(module.Config, values | invocation.values)
    if invocation.dry_run:
        say(f"# laworder {command.name}: the resolved config")
        say(annotated_yaml(config))
        say("# the plan (nothing was done)")
        for number, step in enumerate(module.plan(config), start=1):
            say(f"{number}. {step}")
        return 0
    return module.run(config) or 0
