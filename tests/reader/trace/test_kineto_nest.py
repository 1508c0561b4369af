"""Nesting against its definition, a stack in a loop, on slices that nest, cross, touch and coincide."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_torchcompile_plugin.reader.trace.nest import first_ancestor, nest, outermost_ancestor

Slices = list[tuple[int, int]]


def by_stack(slices: Slices) -> tuple[list[int], list[int], list[int], int]:
    """The definition: parent, depth, self time, crossing."""
    stack: list[tuple[int, int]] = []
    parent, depth, own, crossing = [], [], [], 0
    for row, (start, length) in enumerate(slices):
        while stack and stack[-1][1] <= start:
            stack.pop()
        above, limit = stack[-1] if stack else (-1, start + length)
        end = min(start + length, limit)
        crossing += end < start + length
        parent.append(above)
        depth.append(len(stack))
        own.append(end - start)
        if above >= 0:
            own[above] -= end - start
        stack.append((row, end))
    return parent, depth, own, crossing


def check(slices: Slices) -> None:
    slices = sorted(slices, key=lambda item: (item[0], -item[1]))
    parent, depth, own, crossing = nest(*np.array(slices, np.int64).reshape(-1, 2).T)
    assert (parent.tolist(), depth.tolist(), own.tolist(), crossing) == by_stack(slices)


@pytest.mark.parametrize("span", [3, 10, 60, 1000])
def test_any_slices(span: int) -> None:
    draw = random.Random(span)
    for _ in range(1500):
        count = draw.randint(0, 40)
        check([(draw.randint(0, span), draw.choice([0, 1, draw.randint(0, span)])) for _ in range(count)])


def test_none() -> None:
    check([])


def test_deep_chain_that_crosses() -> None:
    # each slice outlasts all before it: nothing can be set aside, all goes over the stack
    check([(start, 1000 + start) for start in range(300)])


def test_deep_chain() -> None:
    check([(start, 1000 - 2 * start) for start in range(300)])


def test_calls_in_calls() -> None:
    draw = random.Random(7)

    def call(start: int, length: int) -> Slices:
        inner, at = [(start, length)], start
        while length > 4 and draw.random() < 0.8 and at < start + length:
            part = draw.randint(1, length // 2)
            # now and then a callee that returns late
            inner += call(at, part + (draw.random() < 0.05) * length)
            at += part
        return inner

    check(call(0, 4000))


@given(
    st.lists(st.integers(-1, 40), min_size=1, max_size=40).flatmap(
        lambda above: st.tuples(
            st.just(above), st.lists(st.booleans(), min_size=len(above), max_size=len(above))
        )
    )
)
def test_climbing_from_all_at_once_is_climbing_from_each(tree: tuple[list[int], list[bool]]) -> None:
    parent = np.array([min(above, row - 1) for row, above in enumerate(tree[0])], np.int64)
    wanted, rows = np.array(tree[1]), np.arange(len(parent))
    alone = [int(first_ancestor(parent, rows[row : row + 1], wanted)[0]) for row in rows]
    assert first_ancestor(parent, rows, wanted).tolist() == alone
    assert first_ancestor(parent, np.append(rows, -1), wanted).tolist() == [*alone, -1]


def test_the_outermost_of_those_wanted_is_the_last_on_the_way_up() -> None:
    parent, wanted = np.array([-1, 0, 1, 2, -1]), np.array([False, True, True, False, False])
    rows = np.array([3, 2, 1, 0, 4, -1])
    assert outermost_ancestor(parent, rows, lambda at: wanted[at]).tolist() == [1, 1, 1, -1, -1, -1]
