"""Which kernels the GPU libraries run in eager torch: one profiled step of many models and small programs.

OUT=FOLDER python program.py writes FOLDER/library_kernels.json: kernels, operators, and for each program and number format what each
kernel took, in ns, by the operator that launched it. Models have random weights; nothing is loaded from the network.
"""

import contextlib
import json
import os
import signal
import tempfile
import time
import traceback
import warnings

warnings.filterwarnings("ignore")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
import torch
import torch.nn.functional as F
from torch import nn
from torch.profiler import ProfilerActivity, profile

START, BUDGET, EACH = time.time(), float(os.environ.get("BUDGET_S", 330)), 25
OUT = os.path.join(os.environ.get("OUT", "."), "library_kernels.json")
DEV = "cuda"
names, ops, programs, failed, left_out = {}, {}, {}, {}, []


def index(table, word):
    return table.setdefault(word, len(table))


def kernels_of(step):
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as prof:
        step()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "t.json")
        prof.export_chrome_trace(path)
        with open(path) as file:
            events = json.load(file)["traceEvents"]
    launched = {}
    for e in events:
        if e.get("cat") == "cpu_op":
            launched[e["args"].get("External id")] = e["name"]
    sums = {}
    for e in events:
        if e.get("cat") == "kernel" and e.get("ph") == "X":
            op = launched.get(e["args"].get("External id"))
            key = (index(names, e["name"]), -1 if op is None else index(ops, op))
            count, total = sums.get(key, (0, 0))
            sums[key] = (count + 1, total + round(e["dur"] * 1000))
    return [[name, count, total, op] for (name, op), (count, total) in sorted(sums.items())]


def save():
    with open(OUT, "w") as file:
        json.dump(
            {
                "torch": torch.__version__,
                "device": torch.cuda.get_device_name(),
                "names": list(names),
                "ops": list(ops),
                "programs": programs,
                "failed": failed,
                "left_out": left_out,
            },
            file,
        )


class Late(Exception):
    pass


def late(*_):
    raise Late("took too long")


signal.signal(signal.SIGALRM, late)


def program(name, make, modes=("fp32", "bf16"), warmups=1):
    """`make()` gives a step: a function without arguments."""
    if time.time() - START > BUDGET:
        left_out.append(name)
        return
    began = time.time()
    try:
        signal.alarm(EACH)
        step = make()
        for mode in modes:
            torch.backends.cuda.matmul.allow_tf32 = mode == "tf32"
            torch.backends.cudnn.allow_tf32 = mode != "fp32"
            dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(mode)
            cast = torch.autocast(DEV, dtype) if dtype else contextlib.nullcontext()

            def run():
                with cast:
                    step()

            try:
                for _ in range(warmups):
                    run()
                programs[f"{name}.{mode}"] = kernels_of(run)
            except Late:
                raise
            except Exception as error:
                failed[f"{name}.{mode}"] = f"{type(error).__name__}: {str(error)[:300]}"
    except BaseException as error:
        failed[name] = f"{type(error).__name__}: {str(error)[:300]}"
        if isinstance(error, KeyboardInterrupt):
            raise
    finally:
        signal.alarm(0)
        step = None
        torch.cuda.empty_cache()
    print(f"{time.time() - START:6.1f} s {name}: {time.time() - began:.1f} s", failed.get(name, ""), flush=True)


def loss_of(out):
    """Some number that depends on every output."""
    if isinstance(out, torch.Tensor):
        return out.float().square().mean() if out.is_floating_point() else 0
    if isinstance(out, dict):
        if isinstance(out.get("loss"), torch.Tensor):
            return out["loss"].float()
        return sum(loss_of(v) for v in out.values())
    if isinstance(out, (list, tuple)):
        return sum(loss_of(v) for v in out)
    return 0


def train(build, inputs, optimizer=torch.optim.AdamW, evaluate=False, channels_last=False, **options):
    def make():
        torch.manual_seed(0)
        model = build().to(DEV)
        if channels_last:
            model = model.to(memory_format=torch.channels_last)
        model.train(not evaluate)
        data = inputs()
        if evaluate:

            def step():
                with torch.no_grad():
                    model(*data) if isinstance(data, tuple) else model(**data)

            return step
        opt = optimizer(model.parameters(), lr=1e-4, **options)

        def step():
            opt.zero_grad()
            out = model(*data) if isinstance(data, tuple) else model(**data)
            with torch.autocast(DEV, enabled=False):
                loss_of(out).backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()

        return step

    return make


def image(batch=8, size=224, channels_last=False):
    def make():
        x = torch.randn(batch, 3, size, size, device=DEV)
        return (x.contiguous(memory_format=torch.channels_last) if channels_last else x,)

    return make


def tv(name, **kw):
    def build():
        import torchvision

        return torchvision.models.get_model(name, weights=None, **kw)

    return build


def timm_model(name, **kw):
    def build():
        import timm

        return timm.create_model(name, pretrained=False, **kw)

    return build


def hf(config, model, inputs, **kw):
    def build():
        import transformers as t

        return getattr(t, model)(getattr(t, config)(**kw))

    return train(build, inputs)


def tokens(batch=4, length=128, vocab=1000, labels=True):
    def make():
        ids = torch.randint(0, vocab, (batch, length), device=DEV)
        return {"input_ids": ids, "labels": ids} if labels else {"input_ids": ids}

    return make


SMALL = dict(vocab_size=1000, hidden_size=256, num_hidden_layers=2, num_attention_heads=4, intermediate_size=512)


# ---- torchvision
def torchvision_models():
    program("densenet121", train(tv("densenet121"), image()), ("fp32", "bf16", "tf32"))
    program("densenet121_eval", train(tv("densenet121"), image(), evaluate=True), ("fp32", "bf16"))
    program("resnet50", train(tv("resnet50"), image(), torch.optim.SGD, momentum=0.9), ("fp32", "bf16", "fp16"))
    program("resnet50_channels_last", train(tv("resnet50"), image(channels_last=True), channels_last=True, fused=True), ("bf16", "fp16"))
    program("resnet50_eval", train(tv("resnet50"), image(), evaluate=True), ("tf32", "fp16"))
    for name in (
        "mobilenet_v3_large",
        "efficientnet_b0",
        "convnext_tiny",
        "swin_t",
        "vit_b_16",
        "maxvit_t",
        "regnet_y_400mf",
        "shufflenet_v2_x1_0",
        "squeezenet1_1",
        "vgg11_bn",
        "alexnet",
    ):
        program(name, train(tv(name), image(4)))
    program("inception_v3", train(tv("inception_v3", init_weights=False), image(4, 299)))
    program("googlenet", train(tv("googlenet", init_weights=False), image(4)), ("bf16",))
    for name in ("deeplabv3_resnet50", "fcn_resnet50"):
        program(name, train(tv(name, weights_backbone=None), image(2, 256)))
    program("r3d_18", train(tv("r3d_18"), lambda: (torch.randn(2, 3, 8, 112, 112, device=DEV),)))
    program("swin3d_t", train(tv("swin3d_t"), lambda: (torch.randn(1, 3, 8, 112, 112, device=DEV),)), ("bf16",))

    def detection(name):
        def inputs():
            boxes = torch.tensor([[10.0, 10.0, 100.0, 120.0], [50.0, 60.0, 200.0, 220.0]], device=DEV)
            target = {"boxes": boxes, "labels": torch.tensor([1, 2], device=DEV)}
            return ([torch.randn(3, 256, 256, device=DEV)] * 2, [target] * 2)

        return train(tv(name, weights_backbone=None), inputs)

    program("fasterrcnn", detection("fasterrcnn_resnet50_fpn"))
    program("retinanet", detection("retinanet_resnet50_fpn"))
    program(
        "fasterrcnn_eval",
        train(tv("fasterrcnn_resnet50_fpn", weights_backbone=None), lambda: ([torch.randn(3, 256, 256, device=DEV)] * 2,), evaluate=True),
        ("fp32", "bf16"),
    )
    program("raft_small", train(tv("raft_small"), lambda: (torch.randn(1, 3, 128, 128, device=DEV),) * 2), ("fp32",))


# ---- timm
def timm_models():
    for name in (
        "dm_nfnet_f0",
        "levit_128s",
        "beit_base_patch16_224",
        "mixer_s16_224",
        "mobilevit_s",
        "edgenext_small",
        "coatnet_0_224",
        "ghostnet_100",
        "poolformer_s12",
        "res2net50_26w_4s",
        "seresnet50",
        "eca_nfnet_l0",
        "volo_d1_224",
        "xcit_nano_12_p8_224",
        "resnest14d",
        "deit_tiny_patch16_224",
        "tnt_s_patch16_224",
        "hrnet_w18_small",
    ):
        program(f"timm_{name}", train(timm_model(name), image(2)), ("fp32", "bf16"))


# ---- transformers
def transformers_models():
    program("bert", hf("BertConfig", "BertForMaskedLM", tokens(), **SMALL))
    program("distilbert", hf("DistilBertConfig", "DistilBertForMaskedLM", tokens(), vocab_size=1000, dim=256, n_layers=2, n_heads=4, hidden_dim=512))
    program("gpt2", hf("GPT2Config", "GPT2LMHeadModel", tokens(), vocab_size=1000, n_embd=256, n_layer=2, n_head=4), ("fp32", "bf16", "fp16"))
    program("llama", hf("LlamaConfig", "LlamaForCausalLM", tokens(2, 512), num_key_value_heads=2, **SMALL), ("fp32", "bf16", "tf32"))
    program(
        "t5",
        hf(
            "T5Config",
            "T5ForConditionalGeneration",
            tokens(),
            vocab_size=1000,
            d_model=256,
            d_kv=64,
            d_ff=512,
            num_layers=2,
            num_heads=4,
            decoder_start_token_id=0,
            pad_token_id=0,
        ),
    )
    program("mixtral", hf("MixtralConfig", "MixtralForCausalLM", tokens(), num_key_value_heads=2, num_local_experts=4, **SMALL))
    program("mamba", hf("MambaConfig", "MambaForCausalLM", tokens(2, 32), vocab_size=1000, hidden_size=128, num_hidden_layers=2))
    program("deberta", hf("DebertaV2Config", "DebertaV2ForMaskedLM", tokens(), **SMALL))
    program("gptneox", hf("GPTNeoXConfig", "GPTNeoXForCausalLM", tokens(), **SMALL))
    program("qwen3", hf("Qwen3Config", "Qwen3ForCausalLM", tokens(), num_key_value_heads=2, head_dim=64, **SMALL), ("bf16",))
    program("gemma2", hf("Gemma2Config", "Gemma2ForCausalLM", tokens(), num_key_value_heads=2, head_dim=64, **SMALL), ("bf16",))

    def audio(**more):
        return lambda: {"input_values": torch.randn(2, 16000, device=DEV), **more}

    program(
        "wav2vec2",
        hf(
            "Wav2Vec2Config",
            "Wav2Vec2ForCTC",
            lambda: {"input_values": torch.randn(2, 16000, device=DEV), "labels": torch.randint(1, 32, (2, 12), device=DEV)},
            vocab_size=32,
            hidden_size=256,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=512,
        ),
    )
    program(
        "whisper",
        hf(
            "WhisperConfig",
            "WhisperForConditionalGeneration",
            lambda: {"input_features": torch.randn(2, 80, 3000, device=DEV), "labels": torch.randint(1, 900, (2, 32), device=DEV)},
            vocab_size=1000,
            d_model=256,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=512,
            decoder_ffn_dim=512,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=1,
        ),
    )

    def clip():
        import transformers as t

        text = dict(SMALL, max_position_embeddings=77)
        vision = {k: v for k, v in SMALL.items() if k != "vocab_size"}
        model = t.CLIPModel(t.CLIPConfig(text_config=text, vision_config=dict(vision, image_size=224, patch_size=32)))
        return model

    program(
        "clip",
        train(
            clip,
            lambda: {
                "input_ids": torch.randint(0, 1000, (4, 77), device=DEV),
                "pixel_values": torch.randn(4, 3, 224, 224, device=DEV),
                "return_loss": True,
            },
        ),
    )
    program("segformer", hf("SegformerConfig", "SegformerForSemanticSegmentation", lambda: {"pixel_values": torch.randn(2, 3, 256, 256, device=DEV)}))
    program(
        "detr_like_convnextv2",
        hf("ConvNextV2Config", "ConvNextV2ForImageClassification", lambda: {"pixel_values": torch.randn(2, 3, 224, 224, device=DEV)}),
        ("bf16",),
    )


# ---- graphs
def graph_models():
    def gnn(kind):
        def make():
            import torch_geometric.nn as g

            model = getattr(g, kind)(64, 64, num_layers=2, out_channels=16).to(DEV)
            x = torch.randn(5000, 64, device=DEV)
            edges = torch.randint(0, 5000, (2, 40000), device=DEV)
            opt = torch.optim.Adam(model.parameters())

            def step():
                opt.zero_grad()
                loss_of(model(x, edges)).backward()
                opt.step()

            return step

        return make

    for kind in ("GCN", "GAT", "GraphSAGE", "PNA") if False else ("GCN", "GAT", "GraphSAGE"):
        program(f"pyg_{kind}", gnn(kind), ("fp32", "bf16"))


# ---- small programs
def rand(*shape, grad=True, dtype=torch.float32):
    return torch.randn(*shape, device=DEV, dtype=dtype, requires_grad=grad)


def back(function, *inputs):
    """A step that calls `function` forward and backward."""

    def step():
        out = function(*inputs)
        with torch.autocast(DEV, enabled=False):
            loss_of(out).backward()

    return step


def recurrent(kind, **kw):
    def make():
        model, x = getattr(nn, kind)(128, 256, 2, batch_first=True, **kw).to(DEV), rand(16, 64, 128)
        return back(lambda x: model(x)[0], x)

    return make


def packed():
    model, x = nn.LSTM(128, 256, bidirectional=True).to(DEV), rand(64, 16, 128)
    lengths = torch.arange(64, 0, -4)
    return back(lambda x: nn.utils.rnn.pad_packed_sequence(model(nn.utils.rnn.pack_padded_sequence(x, lengths))[0])[0], x)


def layer(build, *shape):
    def make():
        model, x = build().to(DEV), rand(*shape)
        return back(model, x)

    return make


def sdpa(backend, dtype=torch.bfloat16, **kw):
    def make():
        from torch.nn.attention import SDPBackend, sdpa_kernel

        q, k, v = (rand(4, 8, 512, 64, dtype=dtype) for _ in range(3))

        def attend(q, k, v):
            with sdpa_kernel(getattr(SDPBackend, backend)):
                return F.scaled_dot_product_attention(q, k, v, **kw)

        return back(attend, q, k, v)

    return make


def ctc(cudnn):
    def make():
        x = rand(50, 16, 20)
        labels = torch.randint(1, 20, (16 * 10,), dtype=torch.int32, device="cpu" if cudnn else DEV)
        lengths = (
            torch.full((16,), 50, dtype=torch.int32, device="cpu" if cudnn else DEV),
            torch.full((16,), 10, dtype=torch.int32, device="cpu" if cudnn else DEV),
        )
        return back(lambda x: F.ctc_loss(x.float().log_softmax(2), labels, *lengths), x)

    return make


def fft():
    x, odd, image_, double = rand(64, 4096), rand(64, 3 * 7 * 11 * 13), rand(8, 3, 256, 256), rand(16, 1000, dtype=torch.float64)

    def step():
        loss = (
            torch.fft.rfft(x).abs().mean()
            + torch.fft.fft(odd).abs().mean()
            + torch.fft.rfft2(image_).abs().mean()
            + torch.fft.fft(double).abs().mean().float()
        )
        loss = (
            loss
            + torch.fft.irfft(torch.fft.rfft(x)).mean()
            + torch.stft(x, 512, return_complex=True).abs().mean()
            + torch.fft.fft(rand(4, 10007)).abs().mean()
        )
        loss.backward()

    return step


def sorts():
    x, keys = torch.randn(64, 10000, device=DEV), torch.randint(0, 1000, (200000,), device=DEV)
    big = torch.randn(3_000_000, device=DEV)

    def step():
        (
            x.sort(dim=1),
            x.topk(10),
            big.sort(),
            big.topk(50),
            x.argsort(0),
            keys.unique(return_inverse=True, return_counts=True),
            keys.unique_consecutive(),
        )
        (
            x.cumsum(1),
            big.cumsum(0),
            big.cumprod(0),
            x.cummax(1),
            torch.nonzero(x > 1),
            x[x > 0],
            keys.bincount(),
            big.histc(100),
            torch.searchsorted(big[:100], big),
        )
        (
            torch.randperm(1_000_000, device=DEV),
            torch.randperm(1000, device=DEV),
            torch.multinomial(x.softmax(1), 5),
            x.median(1),
            x.kthvalue(5, 1),
            x.mode(1),
        )
        (
            torch.isin(keys, keys[:100]),
            torch.diff(x),
            x.logcumsumexp(1),
            torch.quantile(x[:, :1000], 0.5, 1),
            torch.repeat_interleave(keys[:100].abs() % 5),
        )
        big.max(), big.argmax(), x.sum(1), x.std(1), torch.scatter_reduce(big[:1000], 0, keys % 1000, big[:200000], "amax")

    return step


def embeddings():
    table, bag, sparse = (
        cls(10000, 128, **kw).to(DEV) for cls, kw in ((nn.Embedding, {}), (nn.EmbeddingBag, {"mode": "mean"}), (nn.Embedding, {"sparse": True}))
    )
    high = nn.EmbeddingBag(10000, 64, mode="max").to(DEV)
    ids = torch.randint(0, 10000, (256, 64), device=DEV)

    def step():
        (
            loss_of(table(ids))
            + loss_of(bag(ids))
            + loss_of(high(ids))
            + loss_of(sparse(ids))
            + loss_of(table.weight[ids.view(-1)])
            + loss_of(table.weight.index_select(0, ids[0]))
        ).backward()
        torch.zeros(10000, 8, device=DEV).index_add_(0, ids[0], torch.ones(64, 8, device=DEV))
        torch.zeros(10000, 8, device=DEV).index_put_((ids[0],), torch.ones(64, 8, device=DEV), accumulate=True)

    return step


def linear_algebra():
    a = torch.randn(8, 64, 64, device=DEV)
    spd, one, double = a @ a.mT + torch.eye(64, device=DEV), torch.randn(300, 300, device=DEV), torch.randn(512, 512, device=DEV, dtype=torch.float64)

    def step():
        for call in (
            lambda: torch.linalg.cholesky(spd),
            lambda: torch.linalg.solve(a, a),
            lambda: torch.linalg.inv(spd),
            lambda: torch.linalg.svd(a),
            lambda: torch.linalg.svd(one),
            lambda: torch.linalg.eigh(spd),
            lambda: torch.linalg.qr(a),
            lambda: torch.linalg.qr(one),
            lambda: torch.linalg.det(a),
            lambda: torch.linalg.lstsq(a, a),
            lambda: torch.linalg.solve_triangular(a.triu(), a, upper=True),
            lambda: double @ double,
            lambda: torch.linalg.cholesky(one @ one.T + 300 * torch.eye(300, device=DEV)),
            lambda: torch.dot(one[0], one[1]),
            lambda: one @ one[0],
            lambda: torch.linalg.matrix_exp(a),
            lambda: torch.cdist(one, one),
            lambda: torch.lu_solve(a, *torch.linalg.lu_factor(a)),
        ):
            with contextlib.suppress(RuntimeError):
                call()

    return step


def sparse():
    eye = torch.randn(2000, 2000, device=DEV) * (torch.rand(2000, 2000, device=DEV) > 0.99)
    dense = torch.randn(2000, 64, device=DEV)

    def step():
        for call in (
            lambda: eye.to_sparse() @ dense,
            lambda: eye.to_sparse_csr() @ dense,
            lambda: torch.sparse.mm(eye.to_sparse(), eye.to_sparse()),
            lambda: eye.to_sparse().coalesce().to_dense(),
            lambda: torch.sparse.softmax(eye.to_sparse(), 1),
            lambda: eye.to_sparse_csr().to_dense(),
        ):
            with contextlib.suppress(RuntimeError):
                call()

    return step


def gemms():
    half, eight = torch.randn(512, 512, device=DEV, dtype=torch.float16), torch.randint(-100, 100, (512, 512), device=DEV, dtype=torch.int8)
    float8, one = half.to(torch.float8_e4m3fn), torch.tensor(1.0, device=DEV)
    single, batch = torch.randn(1000, 1000, device=DEV), torch.randn(16, 128, 128, device=DEV)
    odd, double, complex_ = torch.randn(513, 77, device=DEV), single.double(), torch.randn(256, 256, device=DEV, dtype=torch.complex64)
    grouped = torch.randn(4, 256, 256, device=DEV, dtype=torch.bfloat16)

    def step():
        for call in (
            lambda: half @ half,
            lambda: torch._int_mm(eight, eight),
            lambda: torch._scaled_mm(float8, float8.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16),
            lambda: single @ single,
            lambda: batch @ batch,
            lambda: odd @ odd.T,
            lambda: odd.T @ odd,
            lambda: double @ double,
            lambda: complex_ @ complex_,
            lambda: F.linear(half, half, half[0]),
            lambda: batch.half() @ batch.half(),
            lambda: torch.baddbmm(batch, batch, batch),
            lambda: half.bfloat16() @ half.bfloat16(),
            lambda: single[:1] @ single,
            lambda: torch.einsum("bij,bkj->bik", batch, batch),
            lambda: torch._grouped_mm(
                torch.randn(512, 256, device=DEV, dtype=torch.bfloat16),
                grouped,
                offs=torch.tensor([128, 256, 384, 512], device=DEV, dtype=torch.int32),
            ),
            lambda: F.bilinear(single[:, :100], single[:, :100], torch.randn(10, 100, 100, device=DEV)),
            lambda: torch._C._nn.linear(half, half.t().contiguous()).relu(),
            lambda: half @ half[0],
        ):
            with contextlib.suppress(RuntimeError, AttributeError, TypeError):
                call()

    return step


def losses():
    x, y = rand(64, 1000), torch.randint(0, 1000, (64,), device=DEV)

    def step():
        (
            F.cross_entropy(x, y)
            + F.mse_loss(x, x.detach())
            + F.smooth_l1_loss(x, x.detach() + 1)
            + F.kl_div(x.log_softmax(1), x.detach().softmax(1))
            + F.multi_margin_loss(x, y)
            + F.binary_cross_entropy_with_logits(x, x.detach().sigmoid())
            + F.cosine_similarity(x, x.detach()).mean()
            + F.gumbel_softmax(x).mean()
            + F.dropout(x).mean()
        ).backward()

    return step


def sampling():
    x = rand(4, 8, 64, 64)
    theta = rand(4, 2, 3)

    def step():
        grid = F.affine_grid(theta, [4, 8, 64, 64], align_corners=False)
        (
            F.grid_sample(x, grid, align_corners=False).mean()
            + F.interpolate(x, scale_factor=2, mode="bilinear").mean()
            + F.interpolate(x, scale_factor=2, mode="bicubic").mean()
            + F.interpolate(x, scale_factor=2).mean()
            + F.pixel_shuffle(x, 2).mean()
            + F.unfold(x, 3).mean()
            + F.fold(F.unfold(x, 3), (64, 64), 3).mean()
            + F.pad(x, (1, 1, 1, 1), "reflect").mean()
        ).backward()

    return step


def small_programs():
    for kind in ("LSTM", "GRU", "RNN"):
        program(f"small_{kind}", recurrent(kind), ("fp32", "bf16"))
    program("small_LSTM_large", lambda: (lambda m, x: back(lambda x: m(x)[0], x))(nn.LSTM(1024, 1024, 2).to(DEV), rand(64, 64, 1024)), ("fp16",))
    program("small_LSTM_packed", packed, ("fp32",))
    program("small_LSTM_projected", recurrent("LSTM", proj_size=64), ("fp32",))
    program("small_ctc_cudnn", ctc(True), ("fp32",))
    program("small_ctc", ctc(False), ("fp32",))
    program("small_fft", fft, ("fp32",))
    program("small_sorts", sorts, ("fp32",))
    program("small_embeddings", embeddings, ("fp32",))
    program("small_linear_algebra", linear_algebra, ("fp32",))
    program("small_sparse", sparse, ("fp32",))
    program("small_gemms", gemms, ("fp32", "tf32"))
    program("small_losses", losses, ("fp32",))
    program("small_sampling", sampling, ("fp32",))
    layers = {
        "conv1d": (lambda: nn.Conv1d(64, 128, 5, padding=2), 16, 64, 1000),
        "conv3d": (lambda: nn.Conv3d(8, 16, 3), 2, 8, 16, 32, 32),
        "conv_grouped": (lambda: nn.Conv2d(64, 128, 3, groups=8), 8, 64, 56, 56),
        "conv_depthwise": (lambda: nn.Conv2d(64, 64, 7, padding=3, groups=64), 8, 64, 56, 56),
        "conv_transposed": (lambda: nn.ConvTranspose2d(64, 32, 4, 2, 1), 8, 64, 28, 28),
        "conv_dilated": (lambda: nn.Conv2d(64, 64, 3, dilation=4), 8, 64, 56, 56),
        "conv_1x1": (lambda: nn.Conv2d(64, 256, 1), 8, 64, 56, 56),
        "conv_7x7": (lambda: nn.Conv2d(3, 64, 7, 2, 3), 8, 3, 224, 224),
        "conv_transposed3d": (lambda: nn.ConvTranspose3d(8, 8, 3), 2, 8, 8, 16, 16),
        "batch_norm1d": (lambda: nn.BatchNorm1d(256), 512, 256),
        "batch_norm2d": (lambda: nn.BatchNorm2d(64), 32, 64, 56, 56),
        "batch_norm3d": (lambda: nn.BatchNorm3d(16), 4, 16, 8, 32, 32),
        "batch_norm_small": (lambda: nn.BatchNorm2d(512), 64, 512, 7, 7),
        "instance_norm": (lambda: nn.InstanceNorm2d(64, affine=True), 8, 64, 56, 56),
        "group_norm": (lambda: nn.GroupNorm(8, 64), 8, 64, 56, 56),
        "layer_norm": (lambda: nn.LayerNorm(1024), 512, 1024),
        "rms_norm": (lambda: nn.RMSNorm(1024), 512, 1024),
        "local_response_norm": (lambda: nn.LocalResponseNorm(5), 8, 64, 56, 56),
        "max_pool": (lambda: nn.MaxPool2d(3, 2, 1), 8, 64, 112, 112),
        "avg_pool": (lambda: nn.AvgPool2d(2), 8, 64, 112, 112),
        "adaptive_pool": (lambda: nn.AdaptiveAvgPool2d(7), 8, 64, 50, 50),
        "max_pool3d": (lambda: nn.MaxPool3d(2), 2, 8, 16, 32, 32),
        "softmax": (lambda: nn.Softmax(-1), 512, 1000),
        "softmax_2d": (lambda: nn.Softmax2d(), 8, 64, 56, 56),
        "encoder": (lambda: nn.TransformerEncoderLayer(256, 4, batch_first=True), 8, 128, 256),
        "multihead": (lambda: nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.Dropout(0.1)), 8, 128, 256),
        "activations": (lambda: nn.Sequential(nn.ReLU(), nn.SiLU(), nn.PReLU(), nn.Tanh(), nn.Sigmoid(), nn.GLU()), 512, 1024),
    }
    for name, (build, *shape) in layers.items():
        program(f"small_{name}", layer(build, *shape), ("fp32", "bf16"))
    torch.backends.cudnn.benchmark = True
    for name in ("conv3d", "conv_grouped", "conv_depthwise", "conv_transposed", "conv_7x7"):
        build, *shape = layers[name]
        program(f"small_{name}_benchmark", layer(build, *shape), ("fp16",))
    torch.backends.cudnn.benchmark = False
    channels_last = lambda: (lambda m, x: back(m, x))(
        nn.Sequential(nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2)).to(DEV).to(memory_format=torch.channels_last),
        rand(8, 3, 64, 64, grad=False).contiguous(memory_format=torch.channels_last),
    )
    program("small_channels_last", channels_last, ("fp32", "bf16", "fp16"))
    for backend in ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "MATH"):
        program(f"small_sdpa_{backend.lower()}", sdpa(backend, is_causal=True), ("fp32",))
    program("small_sdpa_efficient_fp32", sdpa("EFFICIENT_ATTENTION", torch.float32), ("fp32",))


for group in (torchvision_models, transformers_models, small_programs, timm_models, graph_models):
    try:
        group()
    except Exception:
        traceback.print_exc()
    save()
    if os.environ.get("ONLY_FIRST"):
        break
print(
    f"{len(programs)} programs, {len(names)} kernels, {len(failed)} failed, {len(left_out)} left out, {os.path.getsize(OUT)} bytes, {time.time() - START:.0f} s"
)
for name, error in failed.items():
    print("failed", name, error)
