/** Row → key. Rows that would share a key get a number, so that each can be linked. */
export function uniqueKeys<Row>(rows: Row[], keyOf: (row: Row) => string): Map<Row, string> {
  const seen = new Map<string, number>();
  return new Map(
    rows.map((row) => {
      const key = keyOf(row);
      const n = (seen.get(key) ?? 0) + 1;
      seen.set(key, n);
      return [row, n === 1 ? key : `${key}~${n}`];
    }),
  );
}
