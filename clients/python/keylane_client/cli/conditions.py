"""Conditions and fields as arguments of commands have them."""

from keylane_client import FieldCondition
from keylane_client.cli.errors import BadArgument


def parse_conditions(conditions: tuple[str, ...]) -> dict[str, FieldCondition]:
    """Return conditions by their fields: `status=open`, `amount=10..20`. Raises BadArgument."""
    texts: dict[str, list[str]] = {}
    for each in conditions:
        name, separator, text = each.partition("=")
        if not separator or not name:
            raise BadArgument(f"{each!r} is not a condition: it looks like status=open or amount=10..20")
        texts.setdefault(name.removeprefix("."), []).append(text)
    return {name: FieldCondition(tuple(each)) for name, each in texts.items()}


def split_fields(fields: str) -> list[str]:
    """Return the names in a list with commas."""
    return [each for each in fields.split(",") if each]
