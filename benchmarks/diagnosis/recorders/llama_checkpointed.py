"""Fine-tuning a Llama-shaped model with accelerate, gradient checkpointing switched on as in most recipes."""
import torch
from accelerate import Accelerator
from transformers import LlamaConfig, LlamaForCausalLM
import bench

args = bench.arguments()
dev, B, T = args.device, (2 if args.tiny else 16), (32 if args.tiny else 1024)
torch.set_float32_matmul_precision("high")
torch.manual_seed(0)
prof = bench.profiler(args, stack=False, per=10)

accelerator = Accelerator(mixed_precision="bf16", cpu=args.tiny)
config = LlamaConfig(vocab_size=16000, hidden_size=1536, intermediate_size=4096, num_hidden_layers=2 if args.tiny else 6,
                     num_attention_heads=16, num_key_value_heads=16, max_position_embeddings=2048, use_cache=False)
model = LlamaForCausalLM(config)
if not args.mended:
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
model.train()
opt = torch.optim.AdamW(model.parameters(), lr=2e-5, fused=True)
tokens = torch.randint(0, 16000, (8 * B, T))
data = torch.utils.data.DataLoader(tokens, batch_size=B, shuffle=True, drop_last=True, pin_memory=not args.tiny)
model, opt, data = accelerator.prepare(model, opt, data)
net = torch.compile(model)


def forever():
    while True:
        yield from data


with prof:
    batches = forever()
    for it in range(prof.total):
        ids = next(batches)
        loss = net(input_ids=ids, labels=ids).loss
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        prof.step()
