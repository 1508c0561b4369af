"""Fine-tunes a small Whisper on short clips."""
import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration
from tb_torchcompile_plugin import tensorboard_trace_handler
from common_args import parse, record
from stopwatch import timed

args = parse()
handler = tensorboard_trace_handler(args.out)
device = args.device
torch.manual_seed(0)
torch.set_float32_matmul_precision("high")
layers = 1 if args.quick else 4
config = WhisperConfig(d_model=384, encoder_layers=layers, decoder_layers=layers, encoder_attention_heads=6, decoder_attention_heads=6,
                       encoder_ffn_dim=1536, decoder_ffn_dim=1536, vocab_size=8192, max_source_positions=500, pad_token_id=0,
                       bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, dropout=0.0)
model = WhisperForConditionalGeneration(config).to(device)
model.train()
forward = torch.compile(model) if args.mended else model
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
features = torch.randn(4, 80, 1000, device=device)
labels = torch.randint(3, 8192, (4, 48), device=device)


def train(steps, profiler=None):
    for _ in range(steps):
        with torch.autocast(device, torch.bfloat16):
            loss = forward(input_features=features, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if profiler:
            profiler.step()


train(5)
timed(train)
with record(handler) as profiler:
    train(8, profiler)
