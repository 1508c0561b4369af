"""What is read out of torch's prose."""

import pytest

from tb_torchcompile_plugin.compile_log.compile_rows import (
    fill_from_metrics,
    generated_kernels,
    parse_graph_break,
    parse_recompile_reasons,
    parse_traceback,
    withhold_source,
)
from tb_torchcompile_plugin.compile_log.summary_pb2 import Compilation
from tb_torchcompile_plugin.torch_names.artifacts import is_backward_code

# torch 2.6, as convert_frame and symbolic_convert print it.
BREAK_2_6 = """Graph break in user code at /home/user/m.py:7
Reason: Unsupported: call_function BuiltinVariable(print) [ConstantVariable(str: 'x')] {}
User code traceback:
  File "/home/user/m.py", line 12, in <module>
    f(x)
  File "/home/user/m.py", line 7, in f
    print("x")

Traceback (most recent call last):
  File "/torch/_dynamo/symbolic_convert.py", line 659, in wrapper
    return inner_fn(self, inst)
"""


def test_a_break_of_torch_2_6() -> None:
    parsed = parse_graph_break(BREAK_2_6)
    assert (parsed.file, parsed.line) == ("/home/user/m.py", 7)
    assert parsed.reason.startswith("Unsupported: call_function BuiltinVariable(print)")
    rows = [(frame.line, frame.function, frame.source) for frame in parsed.stack]
    assert rows == [(12, "<module>", "f(x)"), (7, "f", 'print("x")')]
    assert (parsed.explanation, parsed.hints, parsed.docs_url) == ("", [], "")


def test_a_text_without_any_of_the_usual_words_is_its_own_reason() -> None:
    parsed = parse_graph_break("something new\nand more")
    assert parsed.reason == "something new"
    assert (parsed.file, parsed.HasField("line"), list(parsed.stack)) == ("", False, [])
    assert parse_graph_break("").reason == ""


def test_hints_that_run_over_lines_become_one_line() -> None:
    text = "Gb type\n  Explanation: first\n    second\n  Hint: one\n    goes on\n  Hint: two\n\n"
    text += "  Developer debug context: ctx"
    parsed = parse_graph_break(text)
    assert parsed.reason == "Gb type"
    assert parsed.explanation == "first second"
    assert parsed.hints == ["one goes on", "two"]


def test_code_that_an_explanation_quotes_keeps_its_lines() -> None:
    text = "Data-dependent branching\n  Explanation: Detected\n    it.\n\n"
    text += "      Computed as:\n        # File\n        gt = gt(a)\n    \n"
    parsed = parse_graph_break(text + "  Hint: Use `torch.cond`.\n")
    assert parsed.explanation == "Detected it.\nComputed as:\n  # File\n  gt = gt(a)"
    assert parsed.hints == ["Use `torch.cond`."]


def test_a_traceback_with_carets_and_a_frame_without_source() -> None:
    text = '  File "/a.py", line 1, in f\n    x = g()\n        ^^^\n  File "<string>", line 2, in g\n\nnext'
    frames = parse_traceback(text)
    assert [(frame.file, frame.source) for frame in frames] == [("/a.py", "x = g()"), ("<string>", "")]
    assert not frames[1].HasField("source")


@pytest.mark.parametrize(
    ("payload", "reasons"),
    [
        ("0/0: s == 0.0   # code\n", ["0/0: s == 0.0   # code"]),
        ('[\n"0/1: a ",\n"0/0: b"\n]', ["0/1: a", "0/0: b"]),
        ('"0/0: quoted"', ["0/0: quoted"]),
        ("[0/0: no JSON", ["[0/0: no JSON"]),
        ("", []),
    ],
)
def test_recompile_reasons_are_a_list_or_a_bare_string(payload: str, reasons: list[str]) -> None:
    assert parse_recompile_reasons(payload) == reasons


def test_guards_are_cut_where_the_code_begins() -> None:
    assert withhold_source("0/0: s == 0.0      # def g(x, s): return x") == "0/0: s == 0.0"
    assert withhold_source("0/0: x\nUser stack trace:\n  code") == "0/0: x"


@pytest.mark.parametrize(
    ("guard", "kept"),
    [
        ("0/0: s == 'a secret'", "0/0: s == '…'"),
        ('0/1: self.mode == "it\'s a secret"', "0/1: self.mode == '…'"),
        ("0/0: L['d']['secret'] == b'secret'  # if d['secret']:", "0/0: L['d']['…'] == b'…'"),
        ("0/0: list(dict.keys(G['d'])) == ['a', 'it\\'s']", "0/0: list(dict.keys(G['d'])) == ['…', '…']"),
        ("0/0: s == 'a # secret'", "0/0: s == '…'"),
        *[
            (name, name)
            for name in (
                "0/0: tensor 'x' size mismatch at index 0. expected 2, actual 3",
                "0/0: tensor 'L['x']' size mismatch at index 0. expected 2, actual 3",
                "0/0: ___check_type_id(L['s'], 140046328222208)",
                "0/0: Eq(s0, 4)",
            )
        ],
    ],
)
def test_the_strings_of_a_guard_are_withheld_and_its_names_are_not(guard: str, kept: str) -> None:
    assert withhold_source(guard) == kept


CODE = """# AOT ID: ['3_backward']
triton_poi_fused_add_0 = async_compile.triton('triton_poi_fused_add_0', '''
my_add_kernel_0 = async_compile.triton('my_add_kernel', '''
''', device_str='cuda')
cpp_fused_relu_1 = async_compile.cpp_pybinding(['const float*', 'float*'], '''
multi_kernel_0 = async_compile.multi_kernel('multi_kernel_0', [triton_red_fused_1, triton_per_fused_1])
triton_tem_fused_mm_2 = async_compile.triton("triton_tem_fused_mm_2", r'''
async_compile.wait(globals())
    extern_kernels.mm(buf0, buf1, out=buf2)
"""


def test_kernels_that_output_code_defines() -> None:
    assert [(kernel.name, kernel.category) for kernel in generated_kernels(CODE)] == [
        ("triton_poi_fused_add_0", "triton_pointwise"),
        ("my_add_kernel", "triton_user"),
        ("cpp_fused_relu_1", "cpp"),
        ("multi_kernel_0", "other"),
        ("triton_tem_fused_mm_2", "triton_template"),
    ]
    unnamed = CODE.replace("triton('triton_poi_fused_add_0'", "triton('triton_'")
    assert generated_kernels(unnamed) == generated_kernels(CODE), "unique_kernel_names off"
    assert is_backward_code(CODE) is True
    assert is_backward_code("# AOT ID: ['2_inference']") is False
    assert is_backward_code("no header") is None


# torch 2.13; 2.14 and 2.15 write the same.
INDUCTOR_ERROR = """LoweringException: RuntimeError: lowering is broken
  target: aten.erf.default
  args[0]: TensorBox(StorageBox(
      stack_traces = {,
        File "/home/user/m.py", line 6, in model,
          y = torch.sin(x),
      }
  ))
Found from :
   File "/home/user/m.py", line 7, in model
    return torch.erf(y).sum()
           ^^^^^^^^^^^^^^^^^^
"""


@pytest.mark.parametrize("source", [True, False])
def test_an_error_of_inductor_names_the_line_of_the_operator(source: bool) -> None:
    row = Compilation()
    fill_from_metrics(row, {"fail_type": "InductorError", "fail_reason": INDUCTOR_ERROR}, source=source)
    assert (row.failure.file, row.failure.line) == ("/home/user/m.py", 7)
    assert ("torch.erf" in row.failure.reason) == source
