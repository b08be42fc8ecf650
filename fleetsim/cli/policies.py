"""`fleetsim policies`: every policy there is, with its parameters."""

import dataclasses
import json

from fleetsim.cli.options import JsonOption


def policies(as_json: JsonOption = False) -> None:
    """List every policy of every kind, with its parameters and their defaults.

    Shipped ones and those of installed plugins; a scenario may also name one of its own as
    module:Class or path/to/file.py:Class.

    \b
    Examples:
      fleetsim policies
      fleetsim run --set router.routing.policy=least_tokens
    """
    from fleetsim.policies.registry import describe

    infos = describe()
    if as_json:
        print(json.dumps({"policies": [dataclasses.asdict(info) for info in infos]}, indent=2))
        return
    kind = None
    for info in infos:
        if info.kind != kind:
            print(f"{'' if kind is None else chr(10)}{info.kind}")
            kind = info.kind
        print(f"  {info.name}: {info.summary}")
        for param in info.params:
            about = f"  {param.description}" if param.description else ""
            print(f"      {param.name}: {param.type} = {param.default}{about}")
