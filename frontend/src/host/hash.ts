/**
 * The address: `#torch_compile&p.torch_compile.panel=kernels&p.torch_compile.run=…` in TensorBoard's page.
 * Pure functions; `nav.svelte.ts` holds the state.
 */
export const PLUGIN = 'torch_compile';
const PREFIX = `p.${PLUGIN}.`;

export type Params = Record<string, string>;

/** The plugin that a hash shows, "" when it names none. */
export function pluginOf(hash: string): string {
  return hash.replace(/^#/, '').split('&', 1)[0] ?? '';
}

/** Our parameters in a hash; parameters of other plugins are not ours to read. */
export function parseHash(hash: string): Params {
  const params: Params = {};
  for (const part of hash.replace(/^#/, '').split('&').slice(1)) {
    const at = part.indexOf('=');
    if (at < 0 || !part.startsWith(PREFIX)) continue;
    params[decode(part.slice(PREFIX.length, at))] = decode(part.slice(at + 1));
  }
  return params;
}

/** The hash for our parameters; empty values are left out, the order is fixed. */
export function formatHash(params: Params): string {
  const keys = Object.keys(params)
    .filter((key) => params[key] !== '')
    .sort(byRank);
  return '#' + [PLUGIN, ...keys.map((key) => `${PREFIX}${encode(key)}=${encode(params[key]!)}`)].join('&');
}

// Where first, then what: an address that people can read and shorten.
const ORDER = ['run', 'worker', 'span', 'panel', 'code', 'artifact', 'line', 'row'];

function byRank(a: string, b: string): number {
  const rank = (key: string) => (ORDER.indexOf(key) + ORDER.length + 1) % (ORDER.length + 1);
  return rank(a) - rank(b) || (a < b ? -1 : 1);
}

/** Like encodeURIComponent, but keeps what is harmless in a hash and common in ids. */
function encode(text: string): string {
  return encodeURIComponent(text).replace(/%2F/g, '/').replace(/%3A/g, ':').replace(/%2C/g, ',');
}

/** A hand-edited address may hold a stray %: better shown as it is than lost. */
function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
