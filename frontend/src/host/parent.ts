/** The TensorBoard page around our iframe; our own window when we are opened alone or embedded elsewhere. */
export function hostWindow(): Window {
  try {
    // Reading a property of a cross-origin parent throws.
    if (window.parent.location.href) return window.parent;
  } catch {
    // A notebook on another origin: we work, without deep links.
  }
  return window;
}
