import type { Change } from '../../host/nav.svelte';

/** Compile ids restart after torch._dynamo.reset(): the epoch tells them apart, and is silent where it is 0. */
export interface CompileKey {
  compile_id: string;
  epoch?: number;
}

export function idLabel({ compile_id, epoch = 0 }: CompileKey): string {
  return epoch ? `${compile_id} (after reset ${epoch})` : compile_id;
}

export function compilationKey(key: CompileKey, direction = 'forward'): string {
  return [key.compile_id, key.epoch ?? 0, direction].join(',');
}

export function toPanel(panel: string): Change {
  return { panel: panel === 'overview' ? null : panel, row: null };
}

export function toCompilation(key: CompileKey, direction = 'forward'): Change {
  return { panel: 'compile_time', row: `compilations:${compilationKey(key, direction)}` };
}

/** The kernels table, narrowed to one category. */
export function toCategory(category: string | null): Change {
  return { panel: 'kernels', category, row: null };
}
