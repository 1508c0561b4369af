import { watch } from './watch';

/** The width of a component's element while it is shown, and a number that changes when the theme does. */
export function watched(element: () => HTMLElement | undefined): { width: number; theme: number } {
  const seen = $state({ width: 0, theme: 0 });
  $effect(() => {
    const shown = element();
    return (
      shown &&
      watch(
        shown,
        (size) => (seen.width = size.width),
        () => seen.theme++,
      )
    );
  });
  return seen;
}
