"""The frontend's types are made from the structs of the server: the file in the tree is what they say."""

import runpy
from pathlib import Path


def test_the_committed_types_are_fresh():
    script = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "make_types.py"))
    assert script["TARGET"].read_text() == script["generate"](), "run `make types`"
