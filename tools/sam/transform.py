"""SAM's own translator, run by the Python of SAM's virtual environment, which alone has it.

Standard input is a JSON array of {"template": ..., "parameters": ...}; the answer is the array of templates
after the transform, or of {"error": sentence} where SAM refuses one. Local code becomes an object in S3, as
`sam package` leaves it.
"""

import json
import os
import sys
from typing import Any

os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")

from samtranslator.model.exceptions import InvalidDocumentException
from samtranslator.parser.parser import Parser
from samtranslator.translator.translator import Translator

_PACKAGED = {"CodeUri": "AWS::Serverless::Function", "ContentUri": "AWS::Serverless::LayerVersion"}


def transform(template: dict[str, Any], parameters: dict[str, str]) -> dict[str, Any]:
    """Return a template in which SAM's resources are expanded, or its error."""
    for resource in template["Resources"].values():
        for name, kind in _PACKAGED.items():
            if resource["Type"] == kind:
                resource["Properties"][name] = {"Bucket": "packaged", "Key": "code.zip"}
    try:
        done: dict[str, Any] = Translator({}, Parser()).translate(template, parameters)
    except InvalidDocumentException as error:
        return {"error": "; ".join([error.message, *(each.message for each in error.causes)])}
    return done


if __name__ == "__main__":
    json.dump([transform(each["template"], each["parameters"]) for each in json.load(sys.stdin)], sys.stdout)
