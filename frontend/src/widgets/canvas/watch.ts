/** Tells how large an element is while it is shown, and when the theme changes; until what it returns is called. */
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
