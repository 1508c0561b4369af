/** How compilations are named: for people, in rows of tables and in the address. */
import type { Compilation } from '../api/types';

/** Compile ids restart after torch._dynamo.reset(): the epoch distinguishes them, and is not shown if it is 0. */
export interface CompileKey {
  compile_id: string;
  epoch?: number;
}

export function idLabel({ compile_id, epoch = 0 }: CompileKey): string {
  return epoch ? `${compile_id} (after reset ${epoch})` : compile_id;
}

/** The row of a compilation in tables: its own key, and of what only knows its compile id the forward's. */
export function compilationKey(row: CompileKey | Compilation): string {
  return 'parts' in row ? row.key : `${row.compile_id},${row.epoch ?? 0},forward`;
}

/** "0/0", or "0/0,1" after one reset. */
export function codeKey({ compile_id, epoch = 0 }: CompileKey): string {
  return epoch ? `${compile_id},${epoch}` : compile_id;
}

export function parseCodeKey(text: string): Required<CompileKey> | null {
  const match = /^([^,]+)(?:,(\d+))?$/.exec(text);
  return match && { compile_id: match[1]!, epoch: Number(match[2] ?? 0) };
}

/** The name of a function that torch made for the code after a graph break: "forward after line 26". */
export function functionName(name: string): string {
  return name.replace(/^torch_dynamo_resume_in_(.*)_at_(\d+)$/, '$1 after line $2');
}

/** Shorten the name of a graph's slice: its whole hash is of no use to a reader. */
export const graphName = (name: string) =>
  name.replace(/^## Call CompiledFxGraph (\w{8})\w* ##$/, 'compiled graph $1…');
