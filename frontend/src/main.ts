import { mount } from 'svelte';
import App from './shell/App.svelte';
import './shell/app.css';
import { followTheme } from './host/theme';

function loadStyles(href: string): Promise<void> {
  const link = document.createElement('link');
  link.rel = 'stylesheet';
  link.href = href;
  return new Promise((done) => {
    link.onload = link.onerror = () => done();
    document.head.append(link);
  });
}

/**
 * TensorBoard imports this module in the plugin's iframe and calls `render()` once. The stylesheet is next to it (Vite
 * would try to inline a literal `new URL(…)`), but for a file of its own.
 */
export async function render(styles = import.meta.url.replace(/[^/]*$/, 'index.css')): Promise<void> {
  document.documentElement.lang = 'en';
  document.title = 'torch.compile';
  followTheme();
  await loadStyles(styles);
  mount(App, { target: document.body });
}
