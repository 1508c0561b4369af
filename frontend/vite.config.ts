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

/** By module of Svelte the code for what no component does (`tests/rooms.test.ts`), and what it is without. */
const NEVER: Record<string, [RegExp, string][]> = {
  // Await in templates and derived state.
  'client/reactivity/async': [
    [/(export function flatten[^{]*\{)[^]*?\n\}\n/, '$1 fn(sync.map(derived)); }\n'],
  ],
  'client/dom/blocks/boundary': [
    [/return !!this.#props.pending/, 'return false'],
    [/#effect_pending_subscriber = [^]*?\n\t\}\);\n/, ''],
    [/\tget_effect_pending\(\)[^]*?\n\t\}\n/, ''],
    [/\n\t(#?)update_pending_count\(d, batch\) \{[^]*?\n\t\}\n/g, '\n\t$1update_pending_count() {}\n'],
    [/(const invoke_onerror = \(\) => \{)[^]*?\n\t\t\};/, '$1};'],
    [/if \(calling_on_error\)/, 'if (false)'],
    [/w\.svelte_boundary_reset_noop\(\);/, ''],
    [/!this\.#props\.onerror && /, ''],
    [/current_batch\?\.is_fork/, 'false'],
  ],
  // Trying a change before it is made.
  'client/reactivity/batch': [
    [/(this|batch)\.is_fork(?! =)/g, 'false'],
    [/effect\.b\?\.is_pending/, 'false'],
    [/\t(in|de)crement\(blocking[^]*?\n\t\}\n/g, ''],
    [/\t((un)?skip_effect|ondiscard|settled)\([^]*?\n\t\}\n/g, ''],
    [/\n\t\tfor \(const \S*( deferred\])? of \w+\.async_deriveds[^]*?\n\t\t\}/g, ''],
    [/batch\.async_deriveds\.clear\(\);/, ''],
    [/ && !this\.async_deriveds\.has\(effect\)/, ''],
    [/async_deriveds = new Map\(\);/, ''],
    [/this\.#new_effects\.push\(effect\);/, ''],
  ],
  'client/reactivity/sources': [[/!batch\.is_fork/, 'true']],
  // Signals that abort when a reaction runs again.
  'client/constants': [[/(STALE_REACTION = )new [^]*?\}\)\(\)/, '$1null']],
  'client/reactivity/deriveds': [
    [/current_batch\?\.is_fork/g, 'false'],
    [/e\.ac !== null/, 'false'],
    [/ \|\| e\.ac\b/, ''],
  ],
  'client/runtime': [
    [/current_batch\?\.is_fork/, 'false'],
    [/(reaction|derived)\.ac !== null/g, 'false'],
  ],
  'client/reactivity/effects': [
    [/const controller = effect\.ac/, 'const controller = null'],
    [/effect\.nodes && effect\.nodes\.t/g, 'null'], // of transitions
  ],
  // Bindings to stores and components of an old kind.
  'client/reactivity/props': [
    [/\[initial_value, is_store_sub\] = capture_store_binding[^]*?\);/, 'initial_value = props[key];'],
    [/props\.\$\$legacy/, 'false'],
  ],
  // Animated lists, actions with an argument, elements with an attribute and directives for their style.
  'client/dom/blocks/each': [
    [/\(flags & EACH_IS_ANIMATED\) !== 0/, 'false'],
    [/\(flags & EACH_ITEM_IMMUTABLE\) === 0/, 'false'],
  ],
  'client/dom/elements/actions': [[/get_value && payload\?\.update/, 'false']],
  'client/dom/elements/style': [[/Array\.isArray\(next_styles\)/, 'false']],
  'shared/attributes': [
    [/typeof value === 'object'/, 'false'],
    [/Array\.isArray\(styles\)/, 'false'],
    [/(new_style = '';[^]*?)if \(value\)/, '$1if (false)'],
  ],
  // Fields of numbers and dates, choices of several, forms that are reset.
  'client/dom/elements/bindings/shared': [[/const prev = [^]*?add_form_reset_listener\(\);\n/, '']],
  'client/dom/elements/bindings/input': [
    [/(?<!function )is_numberlike_input\(input\)/g, 'false'],
    [/input\.type === 'date'/, 'false'],
  ],
  'client/dom/elements/bindings/select': [[/select\.multiple/g, 'false']],
  // A list that only the server needs.
  utils: [[/\t\.\.\.DOM_BOOLEAN_ATTRIBUTES,/, '']],
};

/**
 * Nothing was rendered on a server, no component is of an old kind, and no state is deep (`tests/rooms.test.ts`): what
 * Svelte has for that falls away.
 */
function onlyWhatIsUsed(): Plugin {
  const FLAGS = /export let (hydrating|async_mode_flag|legacy_mode_flag|tracing_mode_flag) = false/g;
  return {
    name: 'only-what-is-used',
    apply: 'build',
    transform: {
      filter: { id: /svelte.src.(internal|utils)/ },
      handler(code, id) {
        if (UNUSED.test(id))
          return id.includes('proxy')
            ? FLAT
            : code.replace(FLAGS, 'export const $1 = false').replace(/^\t(\w+_flag|hydrating) = .*;$/gm, '');
        const module = id.replaceAll('\\', '/').replace(/.*svelte.src.(internal.)?|\.js$/g, '');
        code = code.replace(/(?<!function )should_defer_append\(\)/, 'false');
        code = code.replace(/(?<!function )is_runes\(\)/g, 'true');
        for (const [pattern, without] of NEVER[module] ?? []) {
          const changed = code.replace(pattern, without);
          if (changed === code) this.error(`${id} has no ${pattern}: another version of Svelte?`);
          code = changed;
        }
        return code;
      },
    },
  };
}

const SHARED =
  /node_modules|preload-helper|src.(?!main|shell|panels.(?!sheet)|widgets.(code|icicle|timeline).)/;
/** Code of the first paint, including what the overview shows of other panels. */
const COMMON =
  /node_modules|preload-helper|src.(?!main|shell|panels.overview|widgets.(code|icicle|timeline).)/;
/** Panels of one group of the sidebar: one file of them compresses better, and who opens one soon opens the next. */
const GROUPS = {
  // And small parts of the shell that are seldom needed.
  summary: /src.(panels.(findings|compare|all_runs)|states.EmptyLogdir|shell.Reads)/,
  run: /src.panels.(step|memory|ranks|timeline)/,
  code: /src.panels.(your_code|kernels|operators|compile_time|compilations|graph_breaks|recompiles|generated_code)/,
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
