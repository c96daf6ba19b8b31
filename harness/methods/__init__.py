"""Algorithms over a draft and a target model, one file per method.

A method is a frozen dataclass. Its fields are the hyper-parameters, named as in the paper; each is also a flag of the
launcher. Calling the method fills a chain. Methods contain no I/O, retries, logging or batching: each sample is a
coroutine, and the engines batch the requests. To add a built-in method, add a file and an entry in METHODS. Custom
methods are loaded from files or packages (`harness.methods.references`).
"""

from __future__ import annotations

from collections.abc import Mapping

from harness.methods import plugins
from harness.methods.confspec import ConfSpec
from harness.methods.early_exit import EarlyExit
from harness.methods.glimprouter import GlimpRouter
from harness.methods.lookahead import Lookahead
from harness.methods.method import Method as Method
from harness.methods.method import Parameter, fields_of, flag, typed
from harness.methods.method import ParameterField as ParameterField
from harness.methods.method import parameter as parameter
from harness.methods.plugins import MethodSource
from harness.methods.rsd import RSD
from harness.methods.scot import SCoT
from harness.methods.spec_thinking import SpecThinking
from harness.methods.speccot import SpecCoT
from harness.methods.specdecode import SpecDecode
from harness.methods.specguard import SpecGuard
from harness.methods.specreason import SpecReason
from harness.methods.vanilla import Vanilla
from harness.recording import Model as Model

METHODS: dict[str, type[Method]] = {
    "vanilla": Vanilla,
    "specdecode": SpecDecode,
    "speccot": SpecCoT,
    "specreason": SpecReason,
    "scot": SCoT,
    "spec_thinking": SpecThinking,
    "glimprouter": GlimpRouter,
    "lookahead": Lookahead,
    "specguard": SpecGuard,
    "rsd": RSD,
    "confspec": ConfSpec,
    "early_exit": EarlyExit,
}


def build(name: str, params: Mapping[str, Parameter]) -> Method:
    """Build a method from its hyper-parameters.

    Raises KeyError on an unknown method, TypeError on an unknown parameter, ValueError on a value out of range.
    """
    return method_type(name)(**params)


def method_type(name: str) -> type[Method]:
    """Return the class of a built-in or loaded method. Raises KeyError."""
    return METHODS[name] if name in METHODS else plugins.registered[name].type


def defaults(name: str) -> dict[str, Parameter]:
    """Return the defaults of a method's hyper-parameters."""
    return {parameter.name: parameter.default for parameter in parameter_fields(name)}


def parameter_fields(name: str) -> tuple[ParameterField, ...]:
    """Return a method's hyper-parameters in declaration order.

    Raises KeyError on an unknown method.
    """
    return fields_of(method_type(name))


def run_identity(
    method: str, params: Mapping[str, Parameter], source: MethodSource | None = None
) -> dict[str, Parameter]:
    """Return the hyper-parameters that identify a run: all that differ from their defaults.

    `source` lists the parameters of a custom method that equal their defaults.
    """
    own = defaults(method) if method in METHODS else {}
    at_default = source.at_default if source else [name for name, value in own.items() if params.get(name) == value]
    return {name: value for name, value in params.items() if name not in at_default}


def sample_identity(
    method: str, params: Mapping[str, Parameter], source: MethodSource | None = None
) -> dict[str, Parameter]:
    """Return the hyper-parameters that identify a sample: those that identify the run and change the text."""
    speed_only = speed_only_parameters(method) if source is None else source.speed_only
    of_run = run_identity(method, params, source)
    return {name: value for name, value in of_run.items() if name not in speed_only}


def speed_only_parameters(method: str) -> frozenset[str]:
    """Return a built-in method's hyper-parameters that change its speed but not its text (see `parameter`)."""
    return frozenset(p.name for p in (parameter_fields(method) if method in METHODS else ()) if not p.changes_text)


def parameter_names(method: str | None = None) -> list[str]:
    """Return the hyper-parameter names of `method` and of all built-in methods, without duplicates."""
    return list(dict.fromkeys(name for each in ([method] if method else []) + [*METHODS] for name in defaults(each)))


def method_parameters(method: str, values: Mapping[str, Parameter]) -> dict[str, Parameter]:
    """Return a method's hyper-parameters: `values`, and the defaults of the other parameters marked `is_usual`.

    Raises ValueError for an unknown method, an unknown parameter, or an invalid value.
    """
    if method not in METHODS and method not in plugins.registered:
        raise ValueError(f"--method {method}: unknown; valid: {', '.join(METHODS)}")
    declared = parameter_fields(method)
    kinds = {one.name: one.type for one in declared}
    parameters = {one.name: one.default for one in declared if one.is_usual}
    for name, value in values.items():
        if name not in kinds:
            valid = ", ".join(map(flag, kinds)) or "none"
            raise ValueError(f"{flag(name)} is not a parameter of {method}; valid: {valid}")
        try:
            parameters[name] = typed(kinds[name], value)
        except ValueError as error:
            raise ValueError(f"{flag(name)} {value}: {error}") from error
    try:
        build(method, parameters)
    except ValueError:
        raise
    except Exception as error:  # a custom method may raise anything
        raise ValueError(f"method {method} rejects these parameters: {type(error).__name__}: {error}") from error
    return parameters
