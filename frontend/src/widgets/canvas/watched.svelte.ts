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

/** Watch the size of an element and the theme; the returned function stops it. */
export function watch(
  element: HTMLElement,
  onsize: (size: DOMRect) => void,
  ontheme: () => void,
): () => void {
  const sizes = new ResizeObserver(([entry]) => {
    // Another tab of TensorBoard is shown: it stays as it was.
    if (entry && entry.contentRect.width > 0) onsize(entry.contentRect);
  });
  sizes.observe(element);
  const themes = new MutationObserver(ontheme);
  themes.observe(document.documentElement, { attributes: true, attributeFilter: ['data-theme'] });
  return () => {
    sizes.disconnect();
    themes.disconnect();
  };
}
