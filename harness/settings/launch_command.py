"""Click commands with the launch flags as options, generated from the setting declarations.

Hyper-parameter options belong to the selected method. Methods are not imported for plain help.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from harness.cli.command import OneLineErrors
from harness.settings import layers
from harness.settings.declaration import Heading, Setting, Value, flag, settings_of
from harness.settings.launch_settings import SBATCH, SBATCH_NAMES, Launch, method_named
from harness.settings.roles import ROLE_SETTINGS

if TYPE_CHECKING:
    from harness.methods import ParameterField

_OF_METHODS: Heading = "Method (hyper-parameters)"
_CHOSEN, _PARAMETERS = "harness.method", "harness.parameters"


class LaunchOption(click.Option):
    """An option under a heading; `--help` lists common options, `--help-all` lists all."""

    def __init__(self, names: list[str], *, heading: str, is_common: bool = False, **settings: Any) -> None:
        super().__init__(names, **settings)
        self.heading, self.is_common = heading, is_common
        if self.metavar is None and not self.is_flag and not isinstance(self.type, click.Choice):
            metavars = {click.types.IntParamType: "N", click.types.FloatParamType: "X", click.Path: "FILE"}
            self.metavar = next((name for kind, name in metavars.items() if isinstance(self.type, kind)), "NAME")


class LaunchCommand(OneLineErrors):
    """A command with the launch flags and the hyper-parameters of the selected method.

    `--help` lists the common flags or, if a method is selected, its parameters. `--help-all` lists all flags and the
    parameters of every built-in method. `without`: launch flags to leave out. `common`: the common flags that `--help`
    lists (default: all of them).
    """

    def __init__(
        self, *arguments: Any, without: Collection[str] = (), common: Collection[str] | None = None, **settings: Any
    ) -> None:
        super().__init__(*arguments, headings=get_args(Heading), **settings)
        self.own_names = {parameter.name for parameter in self.params}
        """Options that are not launch flags."""
        file, declared = click.Path(exists=True, path_type=Path), {**settings_of(Launch), **ROLE_SETTINGS}
        config = "TOML file of flags without leading dashes; flags on the command line override it."
        options = [
            *map(setting_option, declared.values()),
            LaunchOption(["--config"], heading="Run", is_common=True, type=file, help=config),
            *(
                LaunchOption([flag(name), name], heading="Cluster", help=f"Slurm: {SBATCH[word]}")
                for name, word in SBATCH_NAMES.items()
            ),
        ]
        for option in options:
            option.is_common &= common is None or option.name in common
        self.params += [option for option in options if option.name not in without]
        self._has_methods = "method" not in without

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, including the parameters of the selected method."""
        chosen = None
        try:
            chosen = ctx.meta[_CHOSEN] = _chosen_method(args)
        except ValueError as error:
            if not ctx.resilient_parsing:  # shell completion is resilient
                raise click.UsageError(str(error)) from error
        if chosen is not None or (args and not {"-h", "--help"} & set(args)):
            ctx.meta[_PARAMETERS] = list(_parameter_options(chosen))
        return super().parse_args(ctx, args)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the options and the parameters of the selected method.

        Without a selected method, the parameters of all built-in methods are included, except in plain help.
        """
        return [*super().get_params(ctx), *ctx.meta.get(_PARAMETERS, ())]

    def is_listed(self, parameter: click.Parameter, ctx: click.Context) -> bool:
        """Return whether the help lists an option; a method's help lists its parameters instead of common flags."""
        is_of_launch = isinstance(parameter, LaunchOption) and parameter.heading != _OF_METHODS
        of_method = ctx.meta.get(_CHOSEN) is not None and not self.lists_all(ctx)
        return super().is_listed(parameter, ctx) and not (is_of_launch and of_method)

    def where_the_rest_is(self, ctx: click.Context) -> str:
        """Return the last line of the help."""
        path = ctx.command_path
        of_method = f" A method's parameters: {path} --method NAME --help." if self._has_methods else ""
        return (
            "Settings can differ by model, such as --target.temperature 0.7 or --draft.gpus 0. All flags: "
            f"{path} --help-all.{of_method}"
        )

    def flags_of(self, ctx: click.Context) -> dict[str, Value]:
        """Return the launch flags set by the user (no defaults), by name with underscores."""
        typed = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
        given = {name: value for name, value in ctx.params.items() if ctx.get_parameter_source(name) in typed}
        return {name: value for name, value in given.items() if name not in self.own_names}


def parsed_flags(words: Sequence[str]) -> dict[str, Value]:
    """Parse command-line words to launch flags by name. Raises click.UsageError."""
    command = LaunchCommand("harness.launch", add_help_option=False)
    return command.flags_of(command.make_context("harness.launch", list(words)))


def setting_option(setting: Setting) -> LaunchOption:
    """Return the click option for a setting."""
    declared, text = setting.flag, setting.flag.help
    default = setting.default if declared.default is None else declared.default
    if default is not None and default is not False and default != ():
        text += f"  [default: {default}]"
    return _typed_option(
        [setting.spelled, setting.name],
        None if setting.is_repeated or declared.read is not None else setting.type,
        heading=declared.heading,
        is_common=declared.is_common,
        help=text,
        multiple=setting.is_repeated,
        metavar=declared.metavar,
        shell_complete=_offered if setting.name in {"method", "dataset", "draft", "target"} else None,
    )


def _typed_option(names: list[str], kind: Any, **settings: Any) -> LaunchOption:
    """Return an option for a value type; None means a string, and bool gives a pair of flags."""
    if kind is bool:
        names = [f"{names[0]}/--no-{names[0].removeprefix('--')}", *names[1:]]
    elif names[-1] == "preset":
        settings["type"] = click.Choice(tuple(layers.presets()))
    elif choices := [value for value in get_args(kind) if isinstance(value, str)]:
        settings["type"] = click.Choice(choices)
    else:
        settings["type"] = click.Path(path_type=Path) if kind is Path else kind
    return LaunchOption(names, default=None, **settings)


def _offered(_: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return shell completions; imports are local to keep startup fast."""
    from harness.methods import METHODS, plugins
    from harness.problems.benchmarks import DATASETS
    from harness.weights import models

    names: dict[str | None, Iterable[str]] = {"method": (*METHODS, *plugins.registered), "dataset": DATASETS}
    offered = sorted(names.get(parameter.name, (*models.BUNDLED, *models.MODELS)))
    found = [CompletionItem(name) for name in offered if name.startswith(incomplete)]
    return [*found, CompletionItem(incomplete, type="file")]


def _chosen_method(words: Sequence[str]) -> str | None:
    """Return the method selected by the command line, configuration file or preset; None if there is none.

    Also None for an invalid file, which is reported later. Raises ValueError for an invalid method.
    """
    named = click.Command(
        None,
        params=[click.Option(["--method"]), click.Option(["--config"]), click.Option(["--preset"])],
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
        add_help_option=False,
    )
    typed = named.make_context("", list(words), resilient_parsing=True).params
    try:
        reference = layers.method_among([typed, *([layers.config_of(typed["config"])] if typed["config"] else [])])
    except ValueError:
        return None
    return None if reference is None else method_named(reference)


def _parameter_options(method: str | None) -> Iterable[LaunchOption]:
    """Yield one option per hyper-parameter of a method, or of all built-in methods.

    With a method, parameters of other methods are hidden but parsed, so the launch can reject them with a message.
    """
    from harness.methods import METHODS, parameter_fields

    own = {declared.name: declared for declared in parameter_fields(method)} if method else {}
    yield from map(_parameter_option, own.values())
    others = [(other, declared) for other in METHODS for declared in parameter_fields(other)]
    for name, kind in {declared.name: declared.type for _, declared in reversed(others)}.items():
        if name not in own:
            of = ", ".join(other for other, declared in others if declared.name == name)
            names = [flag(name), name]
            yield _typed_option(names, kind, heading=_OF_METHODS, is_common=True, help=of, hidden=bool(method))


def _parameter_option(declared: ParameterField) -> LaunchOption:
    default = str(declared.default)
    if isinstance(declared.default, bool):
        default = ("" if declared.default else "no-") + declared.name.replace("_", "-")
    text = f"{declared.help}  [default: {default}]"
    names = [flag(declared.name), declared.name]
    return _typed_option(names, declared.type, heading=_OF_METHODS, is_common=True, help=text)
