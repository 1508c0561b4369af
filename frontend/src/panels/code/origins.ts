/** Which kernels an output code defines and calls, and which lines of the user's program they come from. */
import type { Frame, Kernel, LinesFrom } from '../../api/types';

export interface CodeKernel {
  name: string;
  /** Line of its definition, from 0. */
  line: number;
  /** Lines on which it is called. */
  calls: number[];
  /** Nodes of the graph after post-grad passes that were fused into it, as the comment above it says. */
  nodes: string[];
  /** Operators of the user's graph, as the comment says: "input_1, input_2". */
  sources: string;
}

export interface Origin {
  lines: Frame[];
  /** Where this is known from. */
  by: LinesFrom;
}

const DEFINITION = /^(\w+) = async_compile\.\w+\(/;
const NODE = /^#\s+%(\w+) :/;
const SOURCES = /^# (?:Topologically Sorted )?Source Nodes: \[([^\]]*)\]/;

export function codeKernels(lines: string[]): CodeKernel[] {
  const kernels: CodeKernel[] = [];
  lines.forEach((text, line) => {
    const match = DEFINITION.exec(text);
    if (match) kernels.push({ name: match[1]!, line, calls: [], ...commentAbove(lines, line) });
  });
  const byName = new Map(kernels.map((kernel) => [kernel.name, kernel]));
  lines.forEach((text, line) => {
    const call = /^\s+(\w+)(?:\.run)?\(/.exec(text);
    if (call) byName.get(call[1]!)?.calls.push(line);
  });
  return kernels;
}

function commentAbove(lines: string[], line: number): { nodes: string[]; sources: string } {
  const nodes: string[] = [];
  let sources = '';
  for (let i = line - 1; i >= 0 && lines[i]!.startsWith('#'); i--) {
    const text = lines[i]!;
    const node = NODE.exec(text);
    // Inputs of the fused nodes are listed with them; they are computed elsewhere.
    if (node && !text.includes('PlaceHolder[')) nodes.unshift(node[1]!);
    sources = SOURCES.exec(text)?.[1] ?? sources;
  }
  return { nodes, sources };
}

const PLACE = /^\s*# File: (.+):(\d+) in (.*?), code: (.*)$/;
const ASSIGNED = /^\s*(\w+)(?:: ".*?")? = /;

/** Node of a printed graph → the user's line that stands in the comment above it. */
export function nodeLines(graph: string): Map<string, Frame> {
  const places = new Map<string, Frame>();
  let at: Frame | null = null;
  for (const line of graph.split('\n')) {
    const place = PLACE.exec(line);
    if (place) {
      const [, file = '', number, name = '', source = ''] = place;
      at = { file, line: Number(number), function: name, source };
    } else if (/^\s*# No stacktrace/.test(line)) at = null;
    else {
      const node = ASSIGNED.exec(line)?.[1];
      if (node && at) places.set(node, at);
    }
  }
  return places;
}

/** The user's lines of each kernel: by torch's provenance where it was recorded, else by comments and the graph. */
export function kernelOrigins(
  kernels: CodeKernel[],
  graph: string | null,
  traces: string | null,
): Map<string, Origin> {
  const frames = traces === null ? new Map<string, Frame[]>() : provenance(traces);
  const nodes = graph === null ? new Map<string, Frame>() : nodeLines(graph);
  const origins = new Map<string, Origin>();
  for (const kernel of kernels) {
    const known = frames.get(kernel.name);
    const lines = known ?? kernel.nodes.flatMap((node) => nodes.get(node) ?? []);
    if (lines.length > 0) {
      origins.set(kernel.name, { lines: distinct(lines), by: known ? 'provenance' : 'comments' });
    }
  }
  return origins;
}

function distinct(frames: Frame[]): Frame[] {
  return [...new Map(frames.map((frame) => [`${frame.file}:${frame.line}`, frame])).values()];
}

/** `inductor_provenance_tracking_kernel_stack_traces`: kernel (with a number) → stacks; the innermost frame counts. */
function provenance(text: string): Map<string, Frame[]> {
  const result = new Map<string, Frame[]>();
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch {
    return result;
  }
  if (typeof parsed !== 'object' || parsed === null) return result;
  for (const [key, stacks] of Object.entries(parsed)) {
    const frames = (Array.isArray(stacks) ? stacks : [stacks]).flatMap(
      (stack) => innermost(String(stack)) ?? [],
    );
    const name = key.replace(/:\d+$/, '');
    if (frames.length > 0) result.set(name, [...(result.get(name) ?? []), ...frames]);
  }
  return result;
}

const TRACE = /File "([^"]+)", line (\d+), in ([^\n]*)(?:\n\s+([^\n]*))?/g;

function innermost(stack: string): Frame | null {
  const match = [...stack.matchAll(TRACE)].at(-1);
  if (!match) return null;
  const [, file = '', line, name = '', source] = match;
  return { file, line: Number(line), function: name.trim(), source: source?.trim() ?? null };
}

export interface KernelTime {
  time_us: number;
  launches: number;
}

/** Run time of each kernel by its name in the code. C++ kernels are traced as graph_3_<name>. */
export function kernelTimes(kernels: Kernel[], compile_id: string): Map<string, KernelTime> {
  const times = new Map<string, KernelTime>();
  for (const kernel of kernels) {
    if (kernel.compile_id !== compile_id) continue;
    const name = kernel.name.replace(/^graph_\d+_/, '');
    const sum = times.get(name) ?? { time_us: 0, launches: 0 };
    times.set(name, { time_us: sum.time_us + kernel.time_us, launches: sum.launches + kernel.launches });
  }
  return times;
}
