"""What TensorBoard imports at start-up.

An ImportError in this module would keep all of TensorBoard from starting, so it imports nothing but TensorBoard
itself; the plugin and what it needs are imported in `load`.
"""

from tensorboard.plugins import base_plugin
from tensorboard.util import tb_logging

logger = tb_logging.get_logger()


class TorchCompileLoader(base_plugin.TBLoader):
    """Create the plugin, or log in one line why there is no tab."""

    def load(self, context: base_plugin.TBContext) -> base_plugin.TBPlugin | None:
        """Return None (TensorBoard runs without the tab) if something that the plugin needs cannot be imported."""
        try:
            from tb_torchcompile_plugin.plugin.plugin import TorchCompilePlugin
        except Exception as error:  # a broken binary wheel can raise anything
            logger.warning(
                "The TORCH COMPILE tab is not available: %s: %s. "
                "To fix this, run: pip install --force-reinstall tb-torchcompile-plugin",
                type(error).__name__,
                error,
            )
            return None
        return TorchCompilePlugin(context)
