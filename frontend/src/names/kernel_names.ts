/** Names of kernels, cut so that two of them never look alike. */

/** C++ template arguments or parameters: "a, b<c, d>" → ["a", "b<c, d>"]. */
function split(text: string): string[] {
  const parts: string[] = [];
  let [depth, from] = [0, 0];
  for (let i = 0; i < text.length; i++) {
    if ('<({['.includes(text[i]!)) depth++;
    else if ('>)}]'.includes(text[i]!)) depth--;
    else if (text[i] === ',' && depth === 0) {
      parts.push(text.slice(from, i).trim());
      from = i + 1;
    }
  }
  return [...parts, text.slice(from).trim()];
}

/** Where the bracket that opens at `open` closes; the end where it does not. */
function closing(text: string, open: number): number {
  let depth = 0;
  for (let i = open; i < text.length; i++) {
    if ('<({'.includes(text[i]!)) depth++;
    else if ('>)}'.includes(text[i]!) && --depth === 0) return i;
  }
  return text.length;
}

const NOISE = /\(anonymous namespace\)::|at::native::|at::cuda::|binary_internal::|templates::cuda::/g;
/** Template arguments that every instance of such a kernel has. */
const COMMON =
  /^(-?[\d.]+\w*|true|false|(unsigned |signed )?(int|long|char|short)|bool|float|double|(c10|std)::.*|TensorList\w*Metadata.*)$/;

/**
 * "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, …>(…)" →
 * "CUDAFunctor_add<float> · vectorized_elementwise_kernel": what it does first, then how.
 */
export function shortKernel(name: string): string {
  const text = name.replace(/^void /, '').replace(NOISE, '');
  const open = text.search(/[<(]/);
  if (open < 0 || text[open - 1] === ' ') return text;
  const outer = text.slice(0, open);
  if (text[open] === '(' || !/_kernel$/.test(outer) || !name.includes('at::native')) {
    const end = text[open] === '(' ? open : closing(text, open) + 1;
    return text.slice(0, end);
  }
  const argument = split(text.slice(open + 1, closing(text, open))).find((part) => !COMMON.test(part));
  return argument ? `${inner(argument)} · ${outer}` : text.slice(0, closing(text, open) + 1);
}

/** The functor inside wrappers, without the lambdas and parameters that follow it. */
function inner(text: string): string {
  const wrapped = /^(gpu_kernel_impl\w*|func_wrapper_t)</.exec(text);
  if (wrapped) {
    const parts = split(text.slice(wrapped[0].length, closing(text, wrapped[0].length - 1)));
    const argument = parts.find((part) => !COMMON.test(part));
    if (argument) return inner(argument);
  }
  const end = text.indexOf('(');
  return end < 0 ? text : text.slice(0, end);
}

interface NameParts {
  /** The kind of kernel: "triton_poi_fused_". */
  kind: string;
  /** The part that is cut if there is not enough room. */
  head: string;
  /** The end, which distinguishes kernels: it is always shown. */
  tail: string;
}

const GENERATED = /^((?:graph_\d+_)?(?:triton_[a-z]{3}_|cpp_)fused_)(.*?)(_\d+)?$/;
const TAIL = 16;
/** How all of cuDNN's and cuBLAS' names of this kind end. */
const SAME = /(_execute)?(_segment_k_off)?(_split_k)?_kernel__5x_\w+$/;

export function nameParts(name: string): NameParts {
  const generated = GENERATED.exec(name);
  if (generated) return { kind: generated[1]!, head: generated[2]!, tail: generated[3] ?? '' };
  const short = shortKernel(name).replace(SAME, '');
  if (short.length < 2.5 * TAIL || short.includes(' · ')) return { kind: '', head: short, tail: '' };
  return { kind: '', head: short.slice(0, -TAIL), tail: short.slice(-TAIL) };
}
