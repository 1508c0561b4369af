/** The word whose meaning is open, one at a time. */
interface Explained {
  /** help: it may still be on its way. */
  now: { help: () => string; at: HTMLElement } | null;
}
export const explained = $state.raw<Explained>({ now: null });
