"""Jobs that were written by somebody who knew none of the rules, and recorded before any of them changed.

| job | parallel | late rank | planted | mended |
|---|---|---|---|---|
| `saved_by_main_rank` | TP | 0 | it saves the parameters every third step | nobody does |
| `validated_by_main_rank` | DDP | 0 | it alone validates, every other step | all validate a share |
| `favourite_expert` | EP | 1 | a router that prefers one expert | none preferred |
| `compiled_on_main_rank` | FSDP2 | 1 | it runs eager | both compiled |
| `stages_in_turn` | pipeline | none | one micro-batch | eight |
| `accumulated` | DDP | none | gradients reduced in each of 8 rounds | `no_sync()` |
| `wrapped_one_by_one` | FSDP2 | none | `fully_shard` around each layer | around four blocks |
| `photos_scaled_by_host` | DDP | none | all scale their photos in the loader's main process | on the GPU |
| `shards_of_nearly_one_size`, `accumulated_without_sync` | DDP | none | nothing | |
"""
