"""What a `Session` answers about the compile side in depth. Kept apart from the reading of traces."""

from __future__ import annotations

from abc import ABC, abstractmethod

from tb_torchcompile_plugin import compile_report as answer
from tb_torchcompile_plugin.findings_report import Findings, worker_findings
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.reader.payloads import read_payload


class CompileAnswers(ABC):
    """Answers from the compile data that `compile_data` finds. All raise NotFound for ids that there are not."""

    @abstractmethod
    def compile_data(self, run: str, worker: str) -> CompileData:
        """Raises NotFound, and NoCompileData where none could be read."""

    def compile_time(self, run: str, worker: str) -> answer.CompileTime:
        """Where compile time went: phases, functions, caches, autotuning, and the spans of it all."""
        return answer.compile_time(self.compile_data(run, worker).summary)

    def compilations(self, run: str, worker: str) -> answer.Compilations:
        """What was compiled, as a stack trie and as a list, and what went wrong."""
        return answer.compilations(self.compile_data(run, worker).summary)

    def compilation(self, run: str, worker: str, epoch: int, compile_id: str) -> answer.CompilationDetails:
        """All that is known of one compile id."""
        return answer.compilation(self.compile_data(run, worker), epoch, compile_id)

    def guards(self, run: str, worker: str, epoch: int, compile_id: str) -> answer.GuardChecks:
        """What is checked at each call of one compile id."""
        return answer.guard_checks(self.compile_data(run, worker), epoch, compile_id)

    def worker_findings(self, run: str, worker: str) -> Findings:
        """What should be changed, as far as that shows without a trace."""
        return worker_findings(self.compile_data(run, worker).summary)

    def artifact(self, run: str, worker: str, number: int) -> str:
        """The text of one artifact. Raises UserError where the file that holds it is damaged or has changed."""
        return read_payload(self.compile_data(run, worker), number)
