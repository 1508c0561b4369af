"""The guard tree as torch dumps it → single checks."""

from tb_torchcompile_plugin.analysis.compile.compilation_details import (
    Elements,
    guards,
    most_guarded_container,
)

# Shortened from a log of torch 2.13.
DUMP = """
TREE_GUARD_MANAGER:
+- RootGuardManager
| +- LAMBDA_GUARD: torch._functorch.aot_autograd.utils.top_saved_tensors_hooks ids == None  # _dynamo/output_graph.py:964 in init_ambient_guards
| +- GLOBAL_STATE: ___check_global_state() against {"allow_tf32":false,"default_dtype":6}
| +- GuardManager: source=L['s'], accessed_by=FrameLocalsGuardAccessor(key='s', framelocals_idx=1), type=<class 'float'>, tag_safe=(True, False)
| | +- EQUALS_MATCH: L['s'] == '# 1'  # def g(x, s): return m(x) * s  # train.py:78 in g
| +- GuardManager: source=G, accessed_by=GlobalsGuardAccessor, type=<class 'dict'>, tag_safe=(False, False)
| | +- DictGuardManager: source=G['m']._modules, accessed_by=DictGetItemGuardAccessor('_modules'), type=<class 'dict'>, tag_safe=(True, False)
| | | +- KeyValueManager pair at index=0
| | | | +- KeyManager: GuardManager: source=list(dict.keys(G['m']._modules))[0], type=<class 'str'>, tag_safe=(True, False)
| | | | | +- EQUALS_MATCH: list(dict.keys(G['m']._modules))[0] == '0'
| | | | +- ValueManager: GuardManager: source=G['m']._modules['0'], type=<class 'Linear'>, tag_safe=(True, True)
| | | | | +- TYPE_MATCH: ___check_type_id(G['m']._modules['0'], 146174464)  # x = self.layers[0](x)  # m.py:3 in forward
+- LAMBDA_GUARD: 2 <= L['x'].size()[0]  # return F.linear(
  # nn/modules/linear.py:134 in forward
+- NO_TENSOR_ALIASING
Guard latency = 24.43 us
"""  # noqa: E501


def test_each_check_has_its_kind_and_what_it_guards() -> None:
    assert [(guard.kind, guard.source) for guard in guards(DUMP)] == [
        ("LAMBDA_GUARD", None),
        ("GLOBAL_STATE", None),
        ("EQUALS_MATCH", "L['s']"),
        ("EQUALS_MATCH", "list(dict.keys(G['m']._modules))[0]"),
        ("TYPE_MATCH", "G['m']._modules['0']"),
        ("LAMBDA_GUARD", None),
        ("NO_TENSOR_ALIASING", None),
    ]


def test_the_users_line_is_what_follows_the_check() -> None:
    by_kind = {guard.kind: guard for guard in guards(DUMP)}
    assert by_kind["TYPE_MATCH"].user_line == "x = self.layers[0](x)  # m.py:3 in forward"
    assert by_kind["GLOBAL_STATE"].user_line is None
    equals = next(guard for guard in guards(DUMP) if guard.source == "L['s']")
    assert equals.user_line == "def g(x, s): return m(x) * s  # train.py:78 in g"
    assert "L['s'] == '# 1'" in equals.text, "a # inside a string is no comment"


def test_a_guard_of_several_lines_is_one_and_the_latency_is_none() -> None:
    last = [guard for guard in guards(DUMP) if guard.kind == "LAMBDA_GUARD"][-1]
    assert last.text.splitlines()[1].strip() == "# nn/modules/linear.py:134 in forward"
    assert not any("latency" in guard.text for guard in guards(DUMP))


def test_a_text_that_is_no_dump_has_no_guards() -> None:
    assert guards("") == guards("nothing of the kind\n+-\n") == []


def _elements(many: int, comment: str) -> str:
    rows = (
        f"| +- GuardManager: source=G['BANNED'][{place}], accessed_by=Item({place}), type=<class 'int'>\n"
        f"| | +- EQUALS_MATCH: G['BANNED'][{place}] == {7 * place}{comment}\n"
        for place in range(many)
    )
    return f"{DUMP}\n+- RootGuardManager\n{''.join(rows)}"


def test_elements_of_a_list_that_are_compared_one_by_one() -> None:
    """What a local or a global is itself is none, nor is the name of a module; torch need not say where."""
    line = "  # banned = torch.tensor(BANNED)  # score.py:19 in forward"
    assert most_guarded_container(guards(DUMP)) is None
    assert most_guarded_container(guards(_elements(3, line))) == Elements("G['BANNED']", 3, "score.py:19")
    assert most_guarded_container(guards(_elements(2, ""))) == Elements("G['BANNED']", 2, "")
