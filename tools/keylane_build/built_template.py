"""`python -m keylane_build.built_template FOLDER`: a built template is for what its layer was built for.

`sam build` does not know what the layer's Makefile made. So this sets allowed values and defaults of the
parameters Runtime and Architecture: CloudFormation refuses others, with a sentence that says why.
"""

import sys
from pathlib import Path

import yaml

from keylane import BUILT_FOR
from keylane_build.stack.loading import load_template

LAYER = "KeylaneLayer"
PARAMETERS = ("Runtime", "Architecture")


def pin_parameters(build: Path, layer: str = LAYER) -> tuple[str, str]:
    """Update the template in a folder, that of `sam build`; return runtime and architecture of its layer."""
    content = (build / layer / "python" / "keylane" / BUILT_FOR).read_text(encoding="utf-8")
    runtime, architecture = content.split()
    path = build / "template.yaml"
    template = load_template(path)
    for name, value in zip(PARAMETERS, (runtime, architecture), strict=True):
        template["Parameters"][name] |= {
            "Default": value,
            "AllowedValues": [value],
            "ConstraintDescription": (
                f"must be {value}: the layer was built for {runtime} on {architecture}. Build it again with"
                " KEYLANE_RUNTIME and KEYLANE_ARCHITECTURE, or leave this parameter out"
            ),
        }
    path.write_text(yaml.safe_dump(template, sort_keys=False, width=200), encoding="utf-8")
    return runtime, architecture


def main(arguments: list[str]) -> int:
    """Update the template in a folder."""
    runtime, architecture = pin_parameters(Path(arguments[0]))
    print(
        f"built for {runtime} on {architecture}: the built template takes no other Runtime and Architecture"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
