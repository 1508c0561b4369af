import { readdirSync } from 'node:fs';
import { vitePreprocess } from '@sveltejs/vite-plugin-svelte';

const COMPONENTS = readdirSync(new URL('src', import.meta.url), { recursive: true, encoding: 'utf8' }).sort();
const numberOf = (filename) =>
  COMPONENTS.findIndex((name) => filename.replaceAll('\\', '/').endsWith(`src/${name}`));

export default {
  preprocess: vitePreprocess(),
  compilerOptions: {
    runes: true,
    // Short ones: the names of scoped styles are most of what does not compress.
    cssHash: ({ filename }) => `s${numberOf(filename).toString(36)}`,
  },
};
