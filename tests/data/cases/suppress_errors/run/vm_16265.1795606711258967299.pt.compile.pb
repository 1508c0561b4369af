‚

2.13.0+cpu3.11.70.1.0BvmHâbvm_16265jfullr2
TORCHINDUCTOR_CACHE_DIR/tmp/torchinductor_rootr
OMP_NUM_THREADS1zbadÄ®ÿ†Ñ§Ÿ—ıàÜïﬁ®•Ÿ—ıêÃ¢ÖÿòŸ—ıò‰∞≥î£Ÿ—ı¢5
-torch._functorch.config.enable_autograd_cacheTrue¢5
,torch.distributed.config.compile_on_one_rankFalse¢0
'torch._dynamo.config.caching_precompileFalse¢4
+torch._inductor.config.force_disable_cachesFalse¢-
%torch._inductor.config.fx_graph_cacheTrue™%/tmp/cases/suppress_errors/program.py∞Â9

0/0inner"F/tmp/venv/lib/python3.11/site-packages/torch/_dynamo/external_utils.py(C08¬Àì¿§Ÿ—ı@ŒbJ
dynamoÙÔ≠bJ
other¸ﬁBz^
BackendCompilerFailedEbackend='bad' raised:
RuntimeError: backend failed: unsupported dtypeäV
%/tmp/cases/suppress_errors/program.py<module>"!for _ in range(8): c(x); p.step()ä{
B/tmp/venv/lib/python3.11/site-packages/torch/_dynamo/eval_frame.pyˇ__call__"(return super().__call__(*args, **kwargs)äÉ
A/tmp/venv/lib/python3.11/site-packages/torch/nn/modules/module.pyÚ_wrapped_call_impl"'return self._call_impl(*args, **kwargs)äg
F/tmp/venv/lib/python3.11/site-packages/torch/_dynamo/external_utils.pyCinner"@functools.wraps(fn)òÄ˜í√≠È¢
	frame_key"1"¢
triton_version""¢'
"aotautograd_remote_cache_hit_count0¢+
dynamo_time_before_restart_s0.199924925¢W
fail_reasonH"backend='bad' raised:\nRuntimeError: backend failed: unsupported dtype"¢
graph_node_shapes"{}"¢&
!aotautograd_local_cache_hit_count0¢(
#inductor_fx_remote_cache_miss_count0¢,
#inline_inbuilt_nn_modules_candidatefalse¢

cache_size0¢
log_format_version3¢
co_name"inner"¢
end_time_us1795606711250455¢(
 config_inline_inbuilt_nn_modulestrue¢"
backend_compile_time_s0.000871¢/
%dynamo_compile_time_before_restart_us199924¢
config_suppress_errorstrue¢W
co_filenameH"/tmp/venv/lib/python3.11/site-packages/torch/_dynamo/external_utils.py"¢.
'aot_autograd_cumulative_compile_time_us871¢'
"inductor_fx_remote_cache_hit_count0¢
duration_us207366¢

is_forwardtrue¢+
!dynamo_cumulative_compile_time_us207366¢&
structured_logging_overhead_us4556¢E
python_version3"3.11.7 (main, May  9 2026, 07:35:25) [GCC 12.2.0]"¢$
	fail_type"BackendCompilerFailed"¢
ir_count68¢
non_compliant_ops[]¢∆#
exception_stack_trace¨#["Traceback (most recent call last):\n  File \"/tmp/venv/lib/python3.11/site-packages/torch/_dynamo/convert_frame.py\", line 2102, in _compile\n    guarded_code, tracer_output = compile_inner(code, one_graph, hooks)\n                                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n  File \"/tmp/venv/lib/python3.11/site-packages/torch/_utils_internal.py\", line 96, in wrapper_function\n    return function(*args, **kwargs)\n           ^^^^^^^^^^^^^^^^^^^^^^^^^\n  File \"/tmp/venv/lib/python3.11/site-packages/torch/_dynamo/convert_frame.py\", line 1687, in compile_inner\n    result = _compile_inner(code, one_graph, hooks)\n             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n  File \"/tmp/venv/lib/python3.11/site-packages/torch/_dynamo/convert_frame.py\", line 1747, in _compile_inner\n    dynamo_output = compile_frame(\n                    ^^^^^^^^^^^^^^\n  File \"/tmp/venv/lib/python3.11/site-packages/torch/_dynamo/convert_frame.py\", line 1584, in compile_frame\n    bytecode, tracer_output = transform_code_object(code, transform)\n                              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n  File \"/tmp/venv/lib/python3.11/site-packages/torch/_dynamo/bytecode_transformation.py\", line 1821, in transform_code_object\n    tracer_output = transformations(instructions, code_options)\n                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n  File \"/tmp/venv/lib/python3.11/site-packages/torch/_dynamo/convert_frame.py\", line 1555, in transform\n    tracer_output = trace_frame(\n                    ^^^^^^^^^^^^\n  File \"/tmp/venv/lib/python3.11/site-packages/torch/_dynamo/convert_frame.py\", line 368, in _fn\n    return fn(*args, **kwargs)\n           ^^^^^^^^^^^^^^^^^^^\n  File \"/tmp/venv/lib/python3.11/site-packages/torch/_dynamo/convert_frame.py\", line 954, in trace_frame\n    run_tracer()\n  File \"/tmp/venv/lib/python3.11/site-packages/torch/_dynamo/convert_frame.py\", line 935, in run_tracer\n    tracer.run()\n  File \"/tmp/venv/lib/python3.11/site-packages/torch/_dynamo/symbolic_convert.py\", line 1950, in run\n    while self.step():\n          ^^^^^^^^^^^\n  File \"/tmp/venv/lib/python3.11/site-packages/torch/_dynamo/symbolic_convert.py\", line 1603, in step\n    self.dispatch_table[inst.opcode](self, inst)\n  File \"/tmp/venv/lib/python3.11/site-packages/torch/_dynamo/symbolic_convert.py\", line 5616, in RETURN_VALUE\n    self._return(inst)\n  File \"/tmp/venv/lib/python3.11/site-packages/torch/_dynamo/symbolic_convert.py\", line 5589, in _return\n    all_stack_locals_metadata = self.output.compile_subgraph(\n                                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n  File \"/tmp/venv/lib/python3.11/site-packages/torch/_dynamo/output_graph.py\", line 2234, in compile_subgraph\n    instructions, subgraph_pycode = self.compile_and_call_fx_graph(\n                                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n  File \"/tmp/venv/lib/python3.11/site-packages/torch/_dynamo/output_graph.py\", line 2880, in compile_and_call_fx_graph\n    compiled_fn = self.call_user_compiler(gm, self.example_inputs())\n                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n  File \"/tmp/venv/lib/python3.11/site-packages/torch/_dynamo/output_graph.py\", line 3057, in call_user_compiler\n    return self._call_user_compiler(gm, example_inputs)\n           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n  File \"/tmp/venv/lib/python3.11/site-packages/torch/_dynamo/output_graph.py\", line 3147, in _call_user_compiler\n    raise BackendCompilerFailed(\n  File \"/tmp/venv/lib/python3.11/site-packages/torch/_dynamo/output_graph.py\", line 3119, in _call_user_compiler\n    compiled_fn = compiler_fn(gm, example_inputs)\n                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n  File \"/tmp/venv/lib/python3.11/site-packages/torch/_dynamo/repro/after_dynamo.py\", line 159, in __call__\n    compiled_gm = compiler_fn(gm, example_inputs)\n                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n  File \"/tmp/venv/lib/python3.11/site-packages/torch/__init__.py\", line 2568, in __call__\n    return self.compiler_fn(model_, inputs_, **self.kwargs)\n           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n  File \"/tmp/cases/suppress_errors/program.py\", line 4, in bad\n    def bad(gm,ex): raise RuntimeError(\"backend failed: unsupported dtype\")\n                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\ntorch._dynamo.exc.BackendCompilerFailed: backend='bad' raised:\nRuntimeError: backend failed: unsupported dtype\n"]¢'
"aotautograd_local_cache_miss_count0¢&
!inductor_fx_local_cache_hit_count0¢
has_guarded_codefalse¢

gc_time_us221¢'
"inductor_fx_local_cache_miss_count0¢

start_time1795606711.042887¢
pytorch_version"2.13.0+cpu"¢(
#aotautograd_remote_cache_miss_count0¢!
start_time_us1795606711042887¢
config_recompile_limit8¢)
structured_logging_overhead_s0.004556¢
compliant_custom_ops[]¢ß
stack_traceó["Line: 7, Name: <module>, Filename: /tmp/cases/suppress_errors/program.py", "Line: 511, Name: __call__, Filename: /tmp/venv/lib/python3.11/site-packages/torch/_dynamo/eval_frame.py", "Line: 1778, Name: _wrapped_call_impl, Filename: /tmp/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", "Line: 67, Name: inner, Filename: /tmp/venv/lib/python3.11/site-packages/torch/_dynamo/external_utils.py"]¢
accumulated_cache_size0¢

compile_id"0/0"¢

is_runtimefalse¢
co_firstlineno67¢
specialize_floatfalse¢
restart_reasons[]¢'
entire_frame_compile_time_s0.207366:&

0/0dynamoûÑÖ¿§Ÿ—ı ñ∑’c(Ä˜í√≠È:L

0/0entire_frame_compile¬Àì¿§Ÿ—ı Œb(Ä˜í√≠È2_compile.compile_inner:1

0/0compile_attempt_0ÿÇò¡§Ÿ—ı ê–â^(Ä˜í√≠È:0

0/0bytecode_tracing˙ñ ƒ§Ÿ—ı ∞∆ˇW(Ä˜í√≠È:>

0/0insert_deferred_runtime_asserts¿˛Åù•Ÿ—ı Ë“d(Ä˜í√≠È:N

0/0backend_compileÊ∆ƒû•Ÿ—ı ∆ö5(Ä˜í√≠È2OutputGraph.call_user_compiler:!

0/0gc∞ë¨†•Ÿ—ı ∂ƒ(Ä˜í√≠ÈB"
_compile.compile_inner""P¯ä ?B
compile_attempt_0⁄ﬁ/Â @…?B
bytecode_tracingÜ∫˛ü«?B
get_fake_value6W5WπèÅ?B
create_proxy◊SûÖ¨äÜ?B*
wrap_to_fake_tensor_and_record∫Z¯¬∞à?B!
variable_builder_callÑ¥M≠[ƒ?B+
insert_deferred_runtime_asserts:¬g¿`[?B*
OutputGraph.call_user_compilerÇ∞ ∫ºèL?B
gc„É>[~-?HR
framestotalR
statscalls_capturedZº

describe_source

chromium_event

artifact:dynamo_error

dynamo_start

describe_tensor

describe_storage

str

compilation_metrics

dynamo_output_graphöI
profiler.stepË©å˚ÿŸœû¯ëÃ∆"‰≠‚••Ÿ—ı"àÓÏ••Ÿ—ı«íÙ••Ÿ—ı