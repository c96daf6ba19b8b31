"""The flags of a launch as click options, generated from their declarations.

Hyper-parameters, which are fields of the methods, are in `harness.settings.method_options`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import annotated_types
import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from harness.settings.declaration import Group, Setting, flag, settings_of
from harness.settings.launch_settings import SBATCH, SBATCH_NAMES, Launch
from harness.settings.roles import ROLE_SETTINGS, RoleSetting

METHOD_HEADING = "Method (hyper-parameters)"
HEADINGS: Mapping[Group, str] = {
    "run": "Run",
    "models": "Models",
    "sampling": "Sampling",
    "method": METHOD_HEADING,
    "engine": "Engine",
    "cluster": "Cluster",
    "output": "Output",
}
"""The headings of `--help-all`, in order."""


class LaunchOption(click.Option):
    """An option that `--help-all` lists under the heading of its group, and `--help` briefly if it is a common one."""

    def __init__(
        self,
        declarations: list[str],
        *,
        group: Group,
        brief: str | None = None,
        aliases: Sequence[str] = (),
        **settings: Any,
    ) -> None:
        super().__init__(declarations, **settings)
        self.heading = HEADINGS[group]
        self.brief = brief
        self.is_common = brief is not None
        self.aliases = list(aliases)
        """Further flags that mean it and that no help shows."""

    def brief_record(self) -> tuple[str, str]:
        """Return what `--help` lists of a common option: the flag with what it takes, and the brief words."""
        assert self.brief is not None
        shown = self.opts[0]
        if not self.is_flag:
            numbers = {click.types.IntParamType: "N", click.types.FloatParamType: "X"}
            kind = next((name for known, name in numbers.items() if isinstance(self.type, known)), "NAME")
            shown += f" {self.metavar or ('FILE' if isinstance(self.type, click.Path) else kind)}"
        default = None if self.is_flag else self.help and re.search(r"\[default: ([^ \]]*)\]", self.help)
        return shown, f"{self.brief}  [default: {default[1]}]" if default else self.brief

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Add the option under all of its flags."""
        shown = self.opts
        self.opts = [*shown, *self.aliases]
        try:
            super().add_to_parser(parser, ctx)
        finally:
            self.opts = shown


def launch_options() -> list[LaunchOption]:
    """Return one option for each flag of a launch but the hyper-parameters."""
    own = settings_of(Launch)
    text = "TOML file of flags without their dashes; flags win over it."
    path = click.Path(exists=True, path_type=Path)
    return [
        *(_option([flag(name), name], setting) for name, setting in own.items()),
        *(_option([one.spelled, one.name], one.setting, one) for one in ROLE_SETTINGS.values()),
        LaunchOption(["--config"], group="run", brief=text, type=path, help=text),
        LaunchOption(
            ["--parameter"],
            group="method",
            multiple=True,
            metavar="NAME=VALUE",
            help="Set a hyper-parameter of the method, also one that is called like another flag; may be repeated.",
        ),
        *(
            LaunchOption([flag(name), name], group="cluster", help=f"Slurm: {SBATCH[word]}")
            for name, word in SBATCH_NAMES.items()
        ),
    ]


def typed_flags(context: click.Context) -> dict[str, Any]:
    """Return what was typed on the command line, by flag name with underscores; defaults are left out."""
    typed = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
    return {name: value for name, value in context.params.items() if context.get_parameter_source(name) in typed}


def _option(names: list[str], setting: Setting, of_role: RoleSetting | None = None) -> LaunchOption:
    """Return the option of a setting; `of_role`: where it is one of a model's."""
    declared = setting.flag
    text = declared.help.format(role=of_role.role) if of_role else declared.help
    default = setting.default if declared.default is None else declared.default
    is_common = declared.is_common and not (of_role and of_role.role == "reward")
    settings: dict[str, Any] = {"help": text}
    if default is not None and default is not False and default != ():
        settings["help"] += f"  [default: {default}]"
    if setting.type is bool and setting.is_optional:
        names = [f"{names[0]}/--no-{names[0].removeprefix('--')}", *names[1:]]
        settings["default"] = None
    elif setting.type is bool:
        settings["is_flag"] = True
    else:
        settings |= {"type": _click_type(setting), "multiple": setting.is_repeated, "metavar": declared.metavar}
    return LaunchOption(
        names,
        group=declared.group,
        brief=text if is_common else None,
        aliases=of_role.aliases if of_role else (),
        shell_complete=_offered if names[-1] in {"method", "dataset", "draft", "target"} else None,
        **settings,
    )


def literal_choices(hint: Any) -> tuple[str, ...]:
    """Return the values of a Literal, also of an optional one; empty for any other type."""
    for option in (hint, *get_args(hint)):
        values = get_args(option)
        if values and all(isinstance(value, str) for value in values):
            return values
    return ()


def _click_type(setting: Setting) -> Any:
    if setting.name == "preset":
        from harness.settings.layers import presets

        return click.Choice(tuple(presets()))
    if setting.is_repeated or setting.flag.read is not None:
        return str
    if choices := literal_choices(setting.type):
        return click.Choice(choices)
    if setting.type is Path:
        return click.Path(path_type=Path)
    bounds: dict[str, Any] = {}
    for constraint in setting.bounds:
        if isinstance(constraint, annotated_types.Ge):
            bounds["min"] = constraint.ge
        elif isinstance(constraint, annotated_types.Gt):
            bounds |= {"min": constraint.gt, "min_open": True}
        elif isinstance(constraint, annotated_types.Le):
            bounds["max"] = constraint.le
    if bounds:
        return click.IntRange(**bounds) if setting.type is int else click.FloatRange(**bounds)
    return setting.type


def _offered(_: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return what the shell offers; imported is what it needs when the shell asks."""
    from harness.methods import METHODS, plugins
    from harness.problems.benchmarks import DATASETS
    from harness.weights import models

    names: dict[str | None, Iterable[str]] = {"method": (*METHODS, *plugins.registered), "dataset": DATASETS}
    offered = sorted(names.get(parameter.name, (*models.BUNDLED, *models.MODELS)))
    found = [CompletionItem(name) for name in offered if name.startswith(incomplete)]
    return [*found, CompletionItem(incomplete, type="file")]
