"""The program that the launcher process runs: it finds *this* overlapscope and hands over.

Started by its path, so it does not depend on what the current directory or PYTHONPATH hold. Python then puts
this folder first on the path, where nothing may be looked for.
"""

import sys

if not getattr(sys.flags, "safe_path", False):
    del sys.path[0]


def main() -> int:
    """Load the package that this file lies in, then run the launcher, or with ``join`` a launcher's rank."""
    from importlib.util import module_from_spec, spec_from_file_location
    from pathlib import Path

    package = Path(__file__).resolve().parents[1]
    spec = spec_from_file_location(
        package.name, package / "__init__.py", submodule_search_locations=[str(package)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[package.name] = module_from_spec(spec)
    spec.loader.exec_module(module)

    from overlapscope.capture import launcher, member

    if sys.argv[1] == "join":
        return member.main(sys.argv[2:])
    return launcher.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
