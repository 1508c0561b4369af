/** Round steps for about `most` ticks over a width. */
export function tickStep(width: number, most: number): number {
  const raw = width / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(raw));
  return ([1, 2, 5].find((m) => m * power >= raw) ?? 10) * power;
}
