import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig, type Plugin } from 'vitest/config';

/** A warning of the bundler is an error: the bundle is committed, so nobody would read it later. */
function failOnWarnings(): Plugin {
  return {
    name: 'fail-on-warnings',
    apply: 'build',
    onLog(level, log) {
      if (level === 'warn') this.error(log);
    },
  };
}

// Application mode with a kept entry signature: TensorBoard imports index.js and calls its `render()`.
// (Library mode would not minify white space.)
export default defineConfig({
  base: './',
  plugins: [svelte(), failOnWarnings()],
  resolve: { conditions: ['browser'] },
  build: {
    target: 'es2022',
    outDir: '../tb_torchcompile_plugin/static',
    emptyOutDir: true,
    assetsDir: '',
    cssCodeSplit: false,
    modulePreload: false,
    reportCompressedSize: false,
    rolldownOptions: {
      // A busy machine is no fault of the bundle.
      checks: { pluginTimings: false },
      input: 'src/main.ts',
      preserveEntrySignatures: 'strict',
      output: {
        entryFileNames: 'index.js',
        chunkFileNames: '[name].js',
        assetFileNames: (asset) =>
          asset.names.some((n) => n.endsWith('.css')) ? 'index.css' : '[name][extname]',
      },
    },
  },
  // The server serves one folder without any below it.
  worker: { format: 'es', rolldownOptions: { output: { entryFileNames: '[name].js' } } },
  test: { include: ['tests/**/*.test.ts'], environment: 'node' },
});
