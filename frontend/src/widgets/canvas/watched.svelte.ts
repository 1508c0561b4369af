import { watch } from './watch';

/** The width of a component's element while it is shown, and a number that changes when the theme does. */
export function watched(element: () => HTMLElement | undefined): { width: number; theme: number } {
  let width = $state.raw(0);
  let theme = $state.raw(0);
  $effect(() => {
    const shown = element();
    return (
      shown &&
      watch(
        shown,
        (size) => (width = size.width),
        () => theme++,
      )
    );
  });
  return {
    get width() {
      return width;
    },
    get theme() {
      return theme;
    },
  };
}
