"""Print the sizes for the workload of the command line, or write the tables of the pages."""

import argparse
from dataclasses import MISSING, fields

from keylane_build.sizing import bills, pages, steps
from keylane_build.sizing.workload import Workload
from keylane_local.tools import project_root


def main(arguments: list[str] | None = None) -> None:
    """Print the sizes for the workload of the command line, or write the tables of the pages."""
    parser = argparse.ArgumentParser(
        prog="keylane_build.sizing", description="Size all parts of Keylane for a workload."
    )
    parser.add_argument("--document", action="store_true", help="write the tables of docs/operate")
    for each in fields(Workload):
        name = "--" + each.name.replace("_", "-")
        if each.type is bool:
            parser.add_argument(name, action="store_true")
        else:
            default = None if each.default is MISSING else each.default
            parser.add_argument(name, type=int if each.type is int else float, default=default)
    parser.add_argument("--mb-per-s", type=float, help="into Kafka, instead of --writes-per-s")
    given = vars(parser.parse_args(arguments))
    if given.pop("document"):
        for path in pages.TABLES:
            page = project_root() / path
            page.write_text(pages.write(path, page.read_text(encoding="utf-8")), encoding="utf-8")
        return
    if (mb_per_s := given.pop("mb_per_s")) is not None:
        given["writes_per_s"] = mb_per_s * 1e6 / (given["key_bytes"] + given["value_bytes"])
    if missing := [name for name in ("writes_per_s", "reads_per_s", "keys") if given[name] is None]:
        parser.error(f"missing: {', '.join('--' + name.replace('_', '-') for name in missing)}")
    workload = Workload(**given)
    try:
        sized = bills.sized(workload)
    except ValueError as error:
        parser.error(str(error))
    print("\n".join(bills.render_workloads({"requested": workload})))
    print("\n".join(["", *steps.render_steps(workload), ""]))
    for part, charge in sized.bill.items():
        print(f"| {part} | {charge.count:,.4g}: {charge.dollars:,.0f} |")
    parameters = " ".join(f"{name}={value}" for name, value in sized.sizing.parameters.items())
    print(f"\nsam deploy --parameter-overrides {parameters} ...")


if __name__ == "__main__":
    main()
