/** What failed, in the order in which it came on screen: one message of it is told once. */
let onScreen = $state.raw<{ message: string }[]>([]);

export function show(entry: { message: string }): () => void {
  onScreen = [...onScreen, entry];
  return () => (onScreen = onScreen.filter((one) => one !== entry));
}

export const isFirst = (entry: { message: string }): boolean =>
  onScreen.find(({ message }) => message === entry.message) === entry;
