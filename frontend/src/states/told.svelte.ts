/** What failed, in the order in which it came on screen: one message of it is told once. */
let told = $state.raw<{ message: string }[]>([]);

export function tell(entry: { message: string }): () => void {
  told = [...told, entry];
  return () => (told = told.filter((one) => one !== entry));
}

export const isFirst = (entry: { message: string }): boolean =>
  told.find(({ message }) => message === entry.message) === entry;
