import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig, type Plugin } from 'vitest/config';

/** A warning of the bundler is an error: the bundle is committed, so it would not be read later. */
function failOnWarnings(): Plugin {
  return {
    name: 'fail-on-warnings',
    apply: 'build',
    onLog(level, log) {
      if (level === 'warn') this.error(log);
    },
  };
}

/**
 * Vite would load the styles of each chunk. There are none: a component brings its own (`emitCss`), so that the first
 * paint loads only those that it needs.
 */
function noPreload(): Plugin {
  return {
    name: 'no-preload',
    apply: 'build',
    enforce: 'pre',
    load: (id) =>
      id.includes('vite/preload-helper') ? 'export const __vitePreload = (load) => load();' : null,
  };
}

const FLAT = 'export const proxy = (value) => value, get_proxied_value = proxy, is = Object.is;';
const UNUSED = /svelte.src.internal.(client.(proxy|dom.hydration)|flags.index)\.js$/;

/**
 * Nothing was rendered on a server, no component is of an old kind, and no state is deep (`tests/rooms.test.ts`): what
 * Svelte has for that falls away.
 */
function onlyWhatIsUsed(): Plugin {
  const NEVER = /export let (hydrating|async_mode_flag|legacy_mode_flag|tracing_mode_flag) = false/g;
  return {
    name: 'only-what-is-used',
    apply: 'build',
    transform: {
      filter: { id: UNUSED },
      handler: (code, id) =>
        id.includes('proxy')
          ? FLAT
          : code.replace(NEVER, 'export const $1 = false').replace(/^\t(\w+_flag|hydrating) = .*;$/gm, ''),
    },
  };
}

const SHARED = /node_modules|preload-helper|src.(?!main|shell|panels.(?!sheet)|widgets.(code|timeline).)/;
/** Code of the first paint, including what the overview shows of other panels. */
const COMMON = /node_modules|preload-helper|src.(?!main|shell|panels.overview|widgets.(code|timeline).)/;
/** Panels of one group of the sidebar: one file of them compresses better, and who opens one soon opens the next. */
const GROUPS = {
  // And small parts of the shell that are seldom needed.
  summary: /src.(panels.(findings|compare|all_runs)|states.EmptyLogdir|shell.Reads)/,
  run: /src.panels.(step|memory|ranks|timeline)/,
  code: /src.panels.(your_code|kernels|operators)/,
  compile: /src.panels.(compile_time|compilations|graph_breaks|recompiles|generated_code)/,
};
const FIRST = /src.(main.ts|panels.overview.Overview.svelte)$/;

interface Graph {
  getModuleInfo(id: string): { importers: string[] } | null;
}

/** Whether the first paint needs a module: the shell or the overview imports it, at whatever remove. */
function isFirst(id: string, graph: Graph, seen = new Set<string>()): boolean {
  if (FIRST.test(id)) return true;
  if (seen.has(id)) return false;
  seen.add(id);
  return graph.getModuleInfo(id)?.importers.some((importer) => isFirst(importer, graph, seen)) ?? false;
}

// Application mode with a kept entry signature: TensorBoard imports index.js and calls its `render()`.
// (Library mode would not minify white space.)
export default defineConfig({
  base: './',
  plugins: [svelte({ emitCss: false }), noPreload(), onlyWhatIsUsed(), failOnWarnings()],
  resolve: { conditions: ['browser'] },
  build: {
    target: 'es2022',
    outDir: '../tb_torchcompile_plugin/static',
    emptyOutDir: true,
    assetsDir: '',
    cssCodeSplit: false,
    modulePreload: false,
    license: { fileName: 'licenses.md' }, // the licences of bundled packages
    reportCompressedSize: false,
    rolldownOptions: {
      // A busy machine is no error of the bundle.
      checks: { pluginTimings: false },
      optimization: { inlineConst: { mode: 'all', pass: 3 } },
      input: ['src/main.ts', 'src/file.ts'],
      preserveEntrySignatures: 'strict',
      output: {
        // The second one is the script of an exported file, which contains it as it is.
        entryFileNames: ({ name }) => (name === 'file' ? 'file.js' : 'index.js'),
        // The server serves no name with a dash.
        chunkFileNames: ({ name }) => `${name.replaceAll('-', '_')}.js`,
        // In addition to the groups of panels: what the first paint needs, and what several groups share.
        codeSplitting: {
          groups: [
            { name: (id, graph) => (isFirst(id, graph) ? 'common' : null), test: COMMON },
            { name: 'shared', test: SHARED, minShareCount: 2 },
            ...Object.entries(GROUPS).map(([name, test]) => ({ name, test })),
          ],
        },
        assetFileNames: (asset) =>
          asset.names.some((n) => n.endsWith('.css')) ? 'index.css' : '[name][extname]',
      },
    },
  },
  // The server serves one folder without any below it.
  worker: { format: 'es', rolldownOptions: { output: { entryFileNames: '[name].js' } } },
  test: { include: ['tests/**/*.test.ts'], environment: 'node' },
});
