á

2.13.0+cpu3.11.70.1.0BvmHÙbvm_3929jfullr2
TORCHINDUCTOR_CACHE_DIR/tmp/torchinductor_rootr
OMP_NUM_THREADS1zbad€ší¥¬Ñõˆ²·óÅ ¬Ñõ¾ÕèØ‡¬Ñõ˜¹ó‡’œ¬Ñõ¢5
,torch.distributed.config.compile_on_one_rankFalse¢4
+torch._inductor.config.force_disable_cachesFalse¢-
%torch._inductor.config.fx_graph_cacheTrue¢0
'torch._dynamo.config.caching_precompileFalse¢5
-torch._functorch.config.enable_autograd_cacheTrueª%/tmp/cases/suppress_errors/program.py°Ï;

0/0inner"F/tmp/venv/lib/python3.11/site-packages/torch/_dynamo/external_utils.py(C08üŠÌ•Ÿ¬Ñõ@‚ÌµŸJ
dynamoÌÒŸJ
other¶ù%z^
BackendCompilerFailedEbackend='bad' raised:
RuntimeError: backend failed: unsupported dtypeŠV
%/tmp/cases/suppress_errors/program.py<module>"!for _ in range(8): c(x); p.step()Š{
B/tmp/venv/lib/python3.11/site-packages/torch/_dynamo/eval_frame.pyÿ__call__"(return super().__call__(*args, **kwargs)Šƒ
A/tmp/venv/lib/python3.11/site-packages/torch/nn/modules/module.pyò_wrapped_call_impl"'return self._call_impl(*args, **kwargs)Šx
A/tmp/venv/lib/python3.11/site-packages/torch/nn/modules/module.pyı
_call_impl"$return forward_call(*args, **kwargs)Šg
F/tmp/venv/lib/python3.11/site-packages/torch/_dynamo/external_utils.pyCinner"@functools.wraps(fn)˜€—†ùàê¢&
!inductor_fx_local_cache_hit_count0¢)
structured_logging_overhead_s0.016639¢'
entire_frame_compile_time_s0.334325¢.
'aot_autograd_cumulative_compile_time_us424¢W
fail_reasonH"backend='bad' raised:\nRuntimeError: backend failed: unsupported dtype"¢

compile_id"0/0"¢
graph_node_shapes"{}"¢
duration_us334325¢
ir_count68¢'
"aotautograd_remote_cache_hit_count0¢"
backend_compile_time_s0.000424¢”
stack_trace„["Line: 7, Name: <module>, Filename: /tmp/cases/suppress_errors/program.py", "Line: 511, Name: __call__, Filename: /tmp/venv/lib/python3.11/site-packages/torch/_dynamo/eval_frame.py", "Line: 1778, Name: _wrapped_call_impl, Filename: /tmp/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", "Line: 1789, Name: _call_impl, Filename: /tmp/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", "Line: 67, Name: inner, Filename: /tmp/venv/lib/python3.11/site-packages/torch/_dynamo/external_utils.py"]¢
restart_reasons[]¢
config_recompile_limit8¢
end_time_us1795605163757648¢
co_firstlineno67¢$
	fail_type"BackendCompilerFailed"¢'
"inductor_fx_local_cache_miss_count0¢&
!aotautograd_local_cache_hit_count0¢
triton_version""¢

gc_time_us197¢E
python_version3"3.11.7 (main, May  9 2026, 07:35:25) [GCC 12.2.0]"¢'
structured_logging_overhead_us16639¢'
"inductor_fx_remote_cache_hit_count0¢+
!dynamo_cumulative_compile_time_us334325¢W
co_filenameH"/tmp/venv/lib/python3.11/site-packages/torch/_dynamo/external_utils.py"¢

start_time1795605163.423232¢
accumulated_cache_size0¢,
#inline_inbuilt_nn_modules_candidatefalse¢
	frame_key"1"¢
specialize_floatfalse¢
non_compliant_ops[]¢!
start_time_us1795605163423232¢(
#aotautograd_remote_cache_miss_count0¢

cache_size0¢/
%dynamo_compile_time_before_restart_us324650¢(
#inductor_fx_remote_cache_miss_count0¢*
dynamo_time_before_restart_s
0.32465019¢(
 config_inline_inbuilt_nn_modulestrue¢
pytorch_version"2.13.0+cpu"¢
log_format_version3¢
has_guarded_codefalse¢
compliant_custom_ops[]¢
co_name"inner"¢
config_suppress_errorstrue¢'
"aotautograd_local_cache_miss_count0¢

is_runtimefalse¢Æ#
exception_stack_trace¬#["Traceback (most recent call last):\n  File \"/tmp/venv/lib/python3.11/site-packages/torch/_dynamo/convert_frame.py\", line 2102, in _compile\n    guarded_code, tracer_output = compile_inner(code, one_graph, hooks)\n                                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n  File \"/tmp/venv/lib/python3.11/site-packages/torch/_utils_internal.py\", line 96, in wrapper_function\n    return function(*args, **kwargs)\n           ^^^^^^^^^^^^^^^^^^^^^^^^^\n  File \"/tmp/venv/lib/python3.11/site-packages/torch/_dynamo/convert_frame.py\", line 1687, in compile_inner\n    result = _compile_inner(code, one_graph, hooks)\n             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n  File \"/tmp/venv/lib/python3.11/site-packages/torch/_dynamo/convert_frame.py\", line 1747, in _compile_inner\n    dynamo_output = compile_frame(\n                    ^^^^^^^^^^^^^^\n  File \"/tmp/venv/lib/python3.11/site-packages/torch/_dynamo/convert_frame.py\", line 1584, in compile_frame\n    bytecode, tracer_output = transform_code_object(code, transform)\n                              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n  File \"/tmp/venv/lib/python3.11/site-packages/torch/_dynamo/bytecode_transformation.py\", line 1821, in transform_code_object\n    tracer_output = transformations(instructions, code_options)\n                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n  File \"/tmp/venv/lib/python3.11/site-packages/torch/_dynamo/convert_frame.py\", line 1555, in transform\n    tracer_output = trace_frame(\n                    ^^^^^^^^^^^^\n  File \"/tmp/venv/lib/python3.11/site-packages/torch/_dynamo/convert_frame.py\", line 368, in _fn\n    return fn(*args, **kwargs)\n           ^^^^^^^^^^^^^^^^^^^\n  File \"/tmp/venv/lib/python3.11/site-packages/torch/_dynamo/convert_frame.py\", line 954, in trace_frame\n    run_tracer()\n  File \"/tmp/venv/lib/python3.11/site-packages/torch/_dynamo/convert_frame.py\", line 935, in run_tracer\n    tracer.run()\n  File \"/tmp/venv/lib/python3.11/site-packages/torch/_dynamo/symbolic_convert.py\", line 1950, in run\n    while self.step():\n          ^^^^^^^^^^^\n  File \"/tmp/venv/lib/python3.11/site-packages/torch/_dynamo/symbolic_convert.py\", line 1603, in step\n    self.dispatch_table[inst.opcode](self, inst)\n  File \"/tmp/venv/lib/python3.11/site-packages/torch/_dynamo/symbolic_convert.py\", line 5616, in RETURN_VALUE\n    self._return(inst)\n  File \"/tmp/venv/lib/python3.11/site-packages/torch/_dynamo/symbolic_convert.py\", line 5589, in _return\n    all_stack_locals_metadata = self.output.compile_subgraph(\n                                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n  File \"/tmp/venv/lib/python3.11/site-packages/torch/_dynamo/output_graph.py\", line 2234, in compile_subgraph\n    instructions, subgraph_pycode = self.compile_and_call_fx_graph(\n                                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n  File \"/tmp/venv/lib/python3.11/site-packages/torch/_dynamo/output_graph.py\", line 2880, in compile_and_call_fx_graph\n    compiled_fn = self.call_user_compiler(gm, self.example_inputs())\n                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n  File \"/tmp/venv/lib/python3.11/site-packages/torch/_dynamo/output_graph.py\", line 3057, in call_user_compiler\n    return self._call_user_compiler(gm, example_inputs)\n           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n  File \"/tmp/venv/lib/python3.11/site-packages/torch/_dynamo/output_graph.py\", line 3147, in _call_user_compiler\n    raise BackendCompilerFailed(\n  File \"/tmp/venv/lib/python3.11/site-packages/torch/_dynamo/output_graph.py\", line 3119, in _call_user_compiler\n    compiled_fn = compiler_fn(gm, example_inputs)\n                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n  File \"/tmp/venv/lib/python3.11/site-packages/torch/_dynamo/repro/after_dynamo.py\", line 159, in __call__\n    compiled_gm = compiler_fn(gm, example_inputs)\n                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n  File \"/tmp/venv/lib/python3.11/site-packages/torch/__init__.py\", line 2568, in __call__\n    return self.compiler_fn(model_, inputs_, **self.kwargs)\n           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n  File \"/tmp/cases/suppress_errors/program.py\", line 4, in bad\n    def bad(gm,ex): raise RuntimeError(\"backend failed: unsupported dtype\")\n                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\ntorch._dynamo.exc.BackendCompilerFailed: backend='bad' raised:\nRuntimeError: backend failed: unsupported dtype\n"]¢

is_forwardtrue:'

0/0dynamoÚï¼•Ÿ¬Ñõ î£ş£(€—†ùàê:M

0/0entire_frame_compileüŠÌ•Ÿ¬Ñõ ‚ÌµŸ(€—†ùàê2_compile.compile_inner:2

0/0compile_attempt_0Âø–Ÿ¬Ñõ ÆîÂ™(€—†ùàê:1

0/0bytecode_tracingØõÄ›Ÿ¬Ñõ ø†£ˆ(€—†ùàê:>

0/0insert_deferred_runtime_assertsÎÆ‰¨ ¬Ñõ ìÈY(€—†ùàê:N

0/0backend_compileº¶© ¬Ñõ ´ô(€—†ùàê2OutputGraph.call_user_compiler:!

0/0gcŠ×â° ¬Ñõ ‚…(€—†ùàêB"
_compile.compile_innerœA¤(•eÕ?B
compile_attempt_0g—óµüšÔ?B
bytecode_tracing]gUáUJÒ?B
get_fake_value#ëõ–?B
create_proxyB˜>9¢?B*
wrap_to_fake_tensor_and_record3P5Tn™?B!
variable_builder_call,2Xvc/Ê?B+
insert_deferred_runtime_asserts_‡Ó¹
X?B*
OutputGraph.call_user_compilerÇ¬ıî4Ñ;?B
gcVĞìn)İ)?HR
framestotalR
statscalls_capturedZ¼

describe_storage

artifact:dynamo_error

describe_source

chromium_event

describe_tensor

dynamo_output_graph

compilation_metrics

dynamo_start

stršI
profiler.step³Ìı¥èºÉ© Í"Ò¸Ÿ¿ ¬Ñõ"ÁÎ¨¿ ¬ÑõÙ—°¿ ¬Ñõ