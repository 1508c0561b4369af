import { mount } from 'svelte';
import App from './shell/App.svelte';
import './shell/app.css';
import { followTheme } from './host/theme';

/** The stylesheet lies beside this module; Vite would try to inline a literal `new URL(…)`. */
function loadStyles(): Promise<void> {
  const link = document.createElement('link');
  link.rel = 'stylesheet';
  link.href = import.meta.url.replace(/[^/]*$/, 'index.css');
  return new Promise((done) => {
    link.onload = link.onerror = () => done();
    document.head.append(link);
  });
}

/** TensorBoard imports this module in the plugin's iframe and calls `render()` once. */
export async function render(): Promise<void> {
  document.documentElement.lang = 'en';
  document.title = 'torch.compile';
  followTheme();
  await loadStyles();
  mount(App, { target: document.body });
}
