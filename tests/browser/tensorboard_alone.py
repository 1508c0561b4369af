"""TensorBoard with its own plugins and this one. The profiler's, where installed, has a process read each trace."""

import sys

from tensorboard import default, program

from tb_torchcompile_plugin.plugin.loader import TorchCompileLoader

if __name__ == "__main__":
    server = program.TensorBoard([*default.get_static_plugins(), TorchCompileLoader])
    server.configure(sys.argv)
    sys.exit(server.main())
