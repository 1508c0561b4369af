/** The word whose meaning is open, one at a time. */
class Explained {
  /** help: it may still be on its way. */
  now: { help: () => string; at: HTMLElement } | null = $state.raw(null);
}
export const explained = new Explained();
