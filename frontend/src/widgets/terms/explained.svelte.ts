/** The word whose meaning is open, one at a time. */
interface Explained {
  now: { help: string; at: HTMLElement } | null;
}
export const explained = $state<Explained>({ now: null });
