"""The frontend's types are made from the structs of the server: the file in the tree is what they say."""

import make_types


def test_the_committed_types_are_fresh():
    assert make_types.TARGET.read_text() == make_types.generate(), "run `make types`"
