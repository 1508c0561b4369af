import type { Compile } from '../api/types';

/** The text of a line of the program, from any stack or graph break that tells it; null where none does. */
export function sourceOf(compile: Compile, file: string | null, line: number | null): string | null {
  for (const { stack } of [...compile.compilations, ...compile.graph_breaks]) {
    const frame = stack.find((one) => one.source && one.file === file && one.line === line);
    if (frame) return frame.source;
  }
  return compile.graph_breaks.find((row) => row.file === file && row.line === line)?.source ?? null;
}
