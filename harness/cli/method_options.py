"""The options of hyper-parameters, which belong to the chosen method: another's of the same name has no say in them.

A parameter that is called like a flag of the launcher has no flag of its own; `--parameter NAME=VALUE`, which works for
every parameter, sets it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import click

from harness.cli.command import OneLineErrors
from harness.cli.presets import presets
from harness.cli.toml_file import read_toml
from harness.launch_options import RESERVED
from harness.methods import METHODS, ParameterField, parameter_fields
from harness.methods.method import flag
from harness.methods.parameters import parameter_names
from harness.methods.references import FORMS, UnknownMethod, beside, resolve

HEADING = "Method (hyper-parameters)"
_CHOSEN, _FOR_HELP = "harness.method", "harness.help"


class ParameterOption(click.Option):
    """The option of a hyper-parameter."""

    heading = HEADING


class LaunchCommand(OneLineErrors):
    """A command with the flags of a launch, whose hyper-parameters are those of the method that is chosen.

    Without a method, `--help` lists the parameters of each built-in one.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse, with the parameters of the method that the command line names."""
        try:
            ctx.meta[_CHOSEN] = chosen_method(args)
        except UnknownMethod as error:
            if not ctx.resilient_parsing:
                names = ", ".join(map(repr, error.names))
                text = f"{error.reference!r} is not one of {names}, nor {FORMS}"
                raise click.BadParameter(text, param_hint="'--method'") from error
        except ValueError as error:
            if not ctx.resilient_parsing:
                raise click.UsageError(str(error)) from error
        return super().parse_args(ctx, args)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the options, with those of the chosen method in place of all."""
        params = super().get_params(ctx)
        chosen = ctx.meta.get(_CHOSEN)
        if not any(isinstance(option, ParameterOption) for option in params):
            return params
        others = [option for option in params if not isinstance(option, ParameterOption)]
        if chosen is not None:
            return [*others, *parameter_options(chosen)]
        return [*others, *_options_by_method()] if ctx.meta.get(_FOR_HELP) else params

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options by heading, the parameters under their methods."""
        ctx.meta[_FOR_HELP] = True
        try:
            super().format_options(ctx, formatter)
        finally:
            del ctx.meta[_FOR_HELP]


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
            config["method"] = beside(config["method"], file.parent)
        layers.append(config)
    reference = method_among(layers)
    return None if reference is None else resolve(reference)


def method_among(layers: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the method that flags name, the first layer first, and the preset that they name last; else None."""
    preset = next((layer["preset"] for layer in layers if layer.get("preset")), None)
    settings = presets().get(str(preset), {})
    method = next((layer["method"] for layer in (*layers, settings) if layer.get("method")), None)
    return None if method is None else str(method)


def parameter_options(method: str | None = None) -> list[click.Option]:
    """Return one option for each hyper-parameter of the built-in methods, or of a method.

    With a method, those that only others have are hidden; the launch says then which parameters the method takes.
    """
    if method is None:
        return [_shared_option(name) for name in parameter_names()]
    own = {declared.name: declared for declared in parameter_fields(method)}
    shown = [_option(declared) for declared in own.values()]
    hidden = [_shared_option(name) for name in parameter_names() if name not in own]
    for option in hidden:
        option.hidden = True
    return [*(option for option in shown if option is not None), *hidden, *map(_unflagged, _without_flag(own))]


def literal_choices(hint: Any) -> tuple[str, ...]:
    """Return the values of a Literal, also of an optional one; empty for any other type."""
    for option in (hint, *get_args(hint)):
        values = get_args(option)
        if values and all(isinstance(value, str) for value in values):
            return values
    return ()


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


def _without_flag(own: Mapping[str, ParameterField]) -> list[ParameterField]:
    return [declared for name, declared in own.items() if name in RESERVED]


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
    declared = {method: p for method in METHODS for p in parameter_fields(method) if p.name == name}
    return _typed_option(name, next(iter(declared.values())).type, _shared_help(declared))


def _shared_help(declared: Mapping[str, ParameterField]) -> str:
    """Return what a hyper-parameter means, the methods that take it, and its default in each."""
    users: dict[str, list[str]] = {}
    for method, parameter in declared.items():
        users.setdefault(parameter.help, []).append(method)
    text = " ".join(f"{', '.join(methods)}: {meaning}" for meaning, methods in users.items())
    defaults = {method: _default_text(parameter) for method, parameter in declared.items()}
    if len(set(defaults.values())) == 1:
        return f"{text}  [default: {next(iter(defaults.values()))}]"
    by_method = ", ".join(f"{method} {default}" for method, default in defaults.items())
    return f"{text}  [default: {by_method}]"


def _default_text(parameter: ParameterField) -> str:
    """Return a default as it is typed: for a switch, the name of the flag without its dashes."""
    if not isinstance(parameter.default, bool):
        return str(parameter.default)
    if parameter.name in RESERVED:
        return str(parameter.default).lower()
    return ("" if parameter.default else "no-") + parameter.name.replace("_", "-")
