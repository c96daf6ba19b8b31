"""Commands that take the flags of a launch, with the hyper-parameters of the method that is chosen.

A parameter that is called like a flag of the launcher has no flag of its own; `--parameter NAME=VALUE`, which works for
every parameter, sets it. Methods are imported only where a command line names one, or is more than a question for help.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.command import OneLineErrors, is_for_help
from harness.cli.toml_file import read_toml
from harness.settings.click_options import (
    HEADINGS,
    METHOD_HEADING,
    LaunchOption,
    launch_options,
    literal_choices,
    typed_flags,
)
from harness.settings.declaration import flag
from harness.settings.launch_settings import RESERVED
from harness.settings.layers import method_among

if TYPE_CHECKING:
    from harness.methods import ParameterField

_CHOSEN, _ASKED, _PARAMETERS = "harness.method", "harness.help", "harness.parameters"


class ParameterOption(click.Option):
    """The option of a hyper-parameter."""

    heading = METHOD_HEADING


class LaunchCommand(OneLineErrors):
    """A command with the flags of a launch; the hyper-parameters are those of the method that is chosen.

    `--help` lists the common flags and the parameters of the method that is named, `--help-all` all flags with the
    parameters of each built-in method. `without`: flags of a launch that the command does not have; `common`: those
    of the common flags that its `--help` lists, all by default.
    """

    def __init__(
        self, *arguments: Any, without: Collection[str] = (), common: Collection[str] | None = None, **settings: Any
    ) -> None:
        super().__init__(*arguments, headings=HEADINGS.values(), **settings)
        self.own_names = {parameter.name for parameter in self.params}
        """Options that are no flags of a launch."""
        options = [option for option in launch_options() if option.name not in without]
        for option in options:
            option.is_common &= common is None or option.name in common
        self.params += options
        self._has_methods = "method" not in without

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse, with the parameters of the method that the command line names."""
        try:
            ctx.meta[_CHOSEN] = chosen_method(args)
        except ValueError as error:
            if not ctx.resilient_parsing:
                raise click.UsageError(str(error)) from error
        ctx.meta[_ASKED] = "--help-all" if "--help-all" in args else "--help" if is_for_help(args) else None
        return super().parse_args(ctx, args)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the options, with the parameters of the chosen method, else of all; without any for plain help."""
        chosen, asked = ctx.meta.get(_CHOSEN), ctx.meta.get(_ASKED)
        if chosen is None and asked == "--help":
            return super().get_params(ctx)
        if (known := ctx.meta.get(_PARAMETERS)) is None:
            every = chosen is None and asked == "--help-all"
            known = ctx.meta[_PARAMETERS] = list(_options_by_method()) if every else parameter_options(chosen)
        return [*super().get_params(ctx), *known]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write all options by heading; of plain help the common flags or the method's parameters."""
        if self.lists_all(ctx):
            super().format_options(ctx, formatter)
            return
        params = self.get_params(ctx)
        places = list(HEADINGS.values())
        common = sorted(
            (p for p in params if isinstance(p, LaunchOption) and p.is_common), key=lambda p: places.index(p.heading)
        )
        others = [p for p in params if not isinstance(p, LaunchOption)]
        shown: dict[str, list[click.Parameter]] = {}
        shown[METHOD_HEADING] = [p for p in others if isinstance(p, ParameterOption)]
        shown["Options"] = [p for p in others if not isinstance(p, ParameterOption) and getattr(p, "is_common", True)]
        if ctx.meta.get(_CHOSEN) is None:
            with formatter.section("Flags"):
                formatter.write_dl([option.brief_record() for option in common])
        for heading, options in shown.items():
            records = [record for p in options if (record := p.get_help_record(ctx)) and record[1]]
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)

    def where_the_rest_is(self, ctx: click.Context) -> str:
        """Return the last line of the help."""
        path = ctx.command_path
        of_method = f" Those of a method: {path} --method NAME --help." if self._has_methods else ""
        return (
            "Each model has settings of its own, such as --target.temperature 0.7 or --draft.gpus 0. All flags, by "
            f"section: {path} --help-all.{of_method}"
        )

    def flags_of(self, ctx: click.Context) -> dict[str, Any]:
        """Return the flags of a launch that were typed, without options of the command's own."""
        return {name: value for name, value in typed_flags(ctx).items() if name not in self.own_names}


def parsed_flags(words: Sequence[str]) -> dict[str, Any]:
    """Return the flags of a launch among the words of a command line, by name. Raises click.UsageError."""
    command = LaunchCommand("harness.launch", add_help_option=False)
    return command.flags_of(command.make_context("harness.launch", list(words)))


def chosen_method(words: Sequence[str]) -> str | None:
    """Return the name of the method that a command line chooses, itself or by its configuration file or preset.

    None where it chooses none, or the file or the preset is wrong, which is reported with it. Raises ValueError where
    the method is wrong.
    """
    typed = {name: _last_value(words, name) for name in ("--method", "--config", "--preset")}
    layers: list[Mapping[str, Any]] = [{"method": typed["--method"], "preset": typed["--preset"]}]
    if typed["--config"] is not None:
        try:
            file = Path(typed["--config"])
            config = read_toml(file)
        except ValueError:
            return None
        if isinstance(config.get("method"), str):
            from harness.methods.references import beside

            config["method"] = beside(config["method"], file.parent)
        layers.append(config)
    reference = method_among(layers)
    if reference is None:
        return None
    from harness.methods.references import resolve

    return resolve(reference)


def parameter_options(method: str | None = None) -> list[click.Option]:
    """Return one option for each hyper-parameter of the built-in methods, or of a method.

    With a method, those that only others have are hidden; the launch says then which parameters the method takes.
    """
    from harness.methods import parameter_fields, parameter_names

    if method is None:
        return [_shared_option(name) for name in parameter_names()]
    own = {declared.name: declared for declared in parameter_fields(method)}
    shown = [_option(declared) for declared in own.values()]
    hidden = [_shared_option(name) for name in parameter_names() if name not in own]
    for option in hidden:
        option.hidden = True
    unflagged = [_unflagged(declared) for name, declared in own.items() if name in RESERVED]
    return [*(option for option in shown if option is not None), *hidden, *unflagged]


def _last_value(words: Sequence[str], name: str) -> str | None:
    found = None
    for number, word in enumerate(words):
        if word == "--":
            break
        if word == name and number + 1 < len(words):
            found = words[number + 1]
        elif word.startswith(f"{name}="):
            found = word.partition("=")[2]
    return found


def _options_by_method() -> Iterator[click.Option]:
    from harness.methods import METHODS, parameter_fields

    for method, kind in METHODS.items():
        summary = (sys.modules[kind.__module__].__doc__ or "").strip().partition("\n")[0]
        yield _Shown(method, f"{method}:", summary or method)
        for declared in parameter_fields(method):
            if (option := _option(declared)) is not None:
                yield option


def _option(declared: ParameterField) -> ParameterOption | None:
    """Return the option of a parameter; None where the launcher has a flag of this name."""
    if declared.name in RESERVED:
        return None
    text = f"{declared.help}  [default: {_default_text(declared)}]"
    return _typed_option(declared.name, declared.type, text)


def _typed_option(name: str, hint: Any, text: str) -> ParameterOption:
    if hint is bool:
        return ParameterOption([f"{flag(name)}/{flag(f'no-{name}')}", name], help=text, default=None)
    choices = literal_choices(hint)
    return ParameterOption([flag(name), name], type=click.Choice(choices) if choices else hint, help=text, default=None)


def _unflagged(declared: ParameterField) -> click.Option:
    """Return what `--help` shows of a parameter that only `--parameter` can set."""
    kind = "|".join(literal_choices(declared.type)) or declared.type.__name__
    text = f"{declared.help}  [default: {_default_text(declared)}]"
    return _Shown(declared.name, f"--parameter {declared.name}={kind}", text)


class _Shown(ParameterOption):
    """What `--help` lists among the parameters, and is no flag."""

    def __init__(self, name: str, shown: str, text: str) -> None:
        super().__init__([f"--parameter-{name.replace('_', '-')}"], expose_value=False)
        self.record = (shown, text)

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return what is listed."""
        return self.record

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Add nothing: it is no flag."""


def _shared_option(name: str) -> ParameterOption:
    """Return the option of a parameter of one or several built-in methods; which one takes it is checked later."""
    from harness.methods import METHODS, parameter_fields

    declared = {method: p for method in METHODS for p in parameter_fields(method) if p.name == name}
    return _typed_option(name, next(iter(declared.values())).type, ", ".join(declared))


def _default_text(parameter: ParameterField) -> str:
    """Return a default as it is typed: for a switch, the name of the flag without its dashes."""
    if not isinstance(parameter.default, bool):
        return str(parameter.default)
    if parameter.name in RESERVED:
        return str(parameter.default).lower()
    return ("" if parameter.default else "no-") + parameter.name.replace("_", "-")
