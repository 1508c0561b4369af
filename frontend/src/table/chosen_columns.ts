/** Which columns somebody chose, per table: kept in the browser, because it is taste and not a place. */
const KEY = 'torch_compile.columns.';

export function readColumns(table: string): string[] | null {
  try {
    const keys: unknown = JSON.parse(localStorage.getItem(KEY + table) ?? 'null');
    return Array.isArray(keys) && keys.length > 0 ? keys.map(String) : null;
  } catch {
    // Storage can be forbidden or hold what an older version wrote.
    return null;
  }
}

export function writeColumns(table: string, keys: string[]): void {
  try {
    localStorage.setItem(KEY + table, JSON.stringify(keys));
  } catch {
    // Then the choice lasts until the page is closed.
  }
}
