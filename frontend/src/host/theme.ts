import { hostWindow } from './parent';

/** TensorBoard sends no message when its theme changes: the class on its body is the only sign. */
export function isDark(body: Pick<HTMLElement, 'classList'>): boolean {
  return body.classList.contains('dark-mode');
}

/** Keeps `data-theme` of our document equal to TensorBoard's theme. Returns a function that stops it. */
export function followTheme(host: Window = hostWindow(), root: HTMLElement = document.documentElement) {
  if (host === window) return followSystem(root);
  const body = host.document.body;
  const apply = () => (root.dataset.theme = isDark(body) ? 'dark' : 'light');
  apply();
  const observer = new MutationObserver(apply);
  observer.observe(body, { attributes: true, attributeFilter: ['class'] });
  return () => observer.disconnect();
}

function followSystem(root: HTMLElement) {
  const query = matchMedia('(prefers-color-scheme: dark)');
  const apply = () => (root.dataset.theme = query.matches ? 'dark' : 'light');
  apply();
  query.addEventListener('change', apply);
  return () => query.removeEventListener('change', apply);
}
