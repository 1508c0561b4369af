/** At most `most` items: neighbours are put together and the largest stands for them. */
export function buckets<T extends { value: number }>(items: T[], most: number): T[] {
  if (items.length <= most) return items;
  const size = Math.ceil(items.length / most);
  const shown: T[] = [];
  for (let i = 0; i < items.length; i += size) {
    shown.push(items.slice(i, i + size).reduce((best, item) => (item.value > best.value ? item : best)));
  }
  return shown;
}

export function median(values: number[]): number | null {
  if (values.length === 0) return null;
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}
