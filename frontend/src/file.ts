/**
 * The script of a file that `tb-torchcompile export` wrote. It takes the place of TensorBoard: it answers the tab's
 * requests from the embedded data, makes modules of the tab's own files, and shows what the file holds.
 *
 * It is built by itself and put into the page as it is (`api/export/page.py`), so it must not import other modules.
 */
import type { ApiErrorBody, TimelineHits } from './api/types';

/** Where an answer is stored: chunk, first byte, length, type and status. */
type Location = [chunk: number, start: number, length: number, type: string, status: number];

interface ContentLine {
  what: string;
  text: string;
}

interface Contents {
  title: string;
  made: string;
  version: string;
  place: Record<string, string>;
  holds: ContentLine[];
  left_out: ContentLine[];
  parameters: Record<string, string[]>;
  reasons: Record<string, string>;
  instead: string;
}

const KEPT = 24;
const BUCKETS = 1024;
const SEPARATOR = '\x1f';

async function unpacked(element: Element): Promise<ArrayBuffer> {
  const text = atob(element.textContent);
  const bytes = Uint8Array.from(text, (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  return new Response(stream).arrayBuffer();
}

const block = (selector: string) => unpacked(document.querySelector(`script${selector}`)!);
const json = async (selector: string): Promise<unknown> =>
  JSON.parse(new TextDecoder().decode(await block(selector)));

/** The embedded answers, by request. */
class Answers {
  #chunks = new Map<number, Promise<ArrayBuffer>>();

  constructor(
    readonly contents: Contents,
    private index: Record<string, Location>,
  ) {}

  /** Answer as the server would, or explain why the file cannot. */
  async ask(url: string): Promise<Response> {
    const [route = '', query = ''] = url.split('?', 2);
    const asked = new URLSearchParams(query);
    const location = this.index[this.#key(route, asked)] ?? this.#around(route, asked);
    if (!location) return this.#leftOut(route);
    const [, , , type, status] = location;
    const body = await this.#body(location);
    if (route === 'timeline_search' && status === 200) return this.#hits(body, asked);
    return new Response(body, { status, headers: { 'Content-Type': type } });
  }

  #key(route: string, asked: URLSearchParams): string {
    const texts = (this.contents.parameters[route] ?? []).map((name) => asked.get(name) ?? '');
    return [route, ...texts.map((text) => text.split('\n').sort().join('\n'))].join(SEPARATOR);
  }

  /** Of a tile that is not there the next coarser one around it, in which nothing is missing that the file holds. */
  #around(route: string, asked: URLSearchParams): Location | undefined {
    if (route !== 'timeline_window') return undefined;
    let [from, length] = [Number(asked.get('from')), Number(asked.get('to')) - Number(asked.get('from'))];
    const wider = new URLSearchParams(asked);
    while (length < Number.MAX_SAFE_INTEGER) {
      length *= 2;
      from = Math.floor(from / length) * length;
      wider.set('from', String(from));
      wider.set('to', String(from + length));
      wider.set('width', String(BUCKETS));
      const location = this.index[this.#key(route, wider)];
      if (location) return location;
    }
    return undefined;
  }

  /** Return the embedded hits from the requested offset on. */
  #hits(body: ArrayBuffer, asked: URLSearchParams): Response {
    const all = JSON.parse(new TextDecoder().decode(body)) as TimelineHits;
    const offset = Number(asked.get('offset') ?? 0);
    if (all.count > offset && offset >= all.hits.length) return this.#leftOut('timeline_search');
    const at = Number(asked.get('at') ?? 0);
    const hits = all.hits.slice(offset, offset + Number(asked.get('limit') ?? all.hits.length));
    const position = all.hits.filter(({ start_ns }) => start_ns < at).length;
    return Response.json({ ...all, hits, offset, position });
  }

  async #body([chunk, start, length]: Location): Promise<ArrayBuffer> {
    const cached = this.#chunks.get(chunk) ?? block(`[data-chunk="${chunk}"]`);
    this.#chunks.delete(chunk);
    this.#chunks.set(chunk, cached);
    if (this.#chunks.size > KEPT) this.#chunks.delete(this.#chunks.keys().next().value!);
    return (await cached).slice(start, start + length);
  }

  #leftOut(route: string): Response {
    const { reasons, instead } = this.contents;
    const error: ApiErrorBody = {
      code: 'left_out',
      message: reasons[route] ?? 'This is not included in this file',
      file: '',
      next_step: instead,
    };
    return Response.json({ error }, { status: 404 });
  }
}

const MODULES = new Map<string, string>();
const TYPES: Record<string, string> = { css: 'text/css', js: 'text/javascript' };

/** Make an object URL of one of the tab's files. The files that it imports must have been loaded before. */
async function load(element: HTMLElement): Promise<void> {
  const name = element.dataset.file!;
  const bytes = await unpacked(element);
  const type = TYPES[name.split('.').at(-1)!] ?? 'text/plain';
  const text = new TextDecoder()
    .decode(bytes)
    .replace(/import\((["'`])\.\/([\w.]+)\1\)/g, 'import(torchCompileModules.get("$2"))')
    .replace(/((?:from|import)\s*)"\.\/([\w.]+)"/g, (_, what, other) => `${what}"${MODULES.get(other)}"`)
    .replace(/new URL\(`([\w.]+)`,import\.meta\.url\)\.href/g, 'torchCompileModules.get("$1")')
    // Addresses are whole: what they are relative to is of no matter. Of a file on disk a worker can be no module.
    .replace(/,``\+import\.meta\.url\),\{type:`module`\}/g, ')');
  MODULES.set(name, URL.createObjectURL(new Blob([text], { type })));
}

function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  text = '',
  ...children: Node[]
): HTMLElementTagNameMap[K] {
  const created = document.createElement(tag);
  created.textContent = text;
  created.append(...children);
  return created;
}

function table(title: string, rows: ContentLine[]): Node[] {
  const lines = rows.map(({ what, text }) => element('tr', '', element('th', what), element('td', text)));
  return rows.length > 0 ? [element('h3', title), element('table', '', element('tbody', '', ...lines))] : [];
}

function button(text: string, onclick: () => void): HTMLButtonElement {
  const created = element('button', text);
  created.type = 'button';
  created.className = 'button';
  created.onclick = onclick;
  return created;
}

/** Add the line above the tab and the dialog that it opens. */
function about({ title, made, version, holds, left_out, instead }: Contents): HTMLDialogElement {
  const dialog = element('dialog', '', element('h2', 'About this file'));
  const summary = element(
    'p',
    `Exported from run “${title}” on ${made} by tb-torchcompile-plugin ${version}.`,
  );
  const close = button('Close', () => dialog.close());
  dialog.append(summary, ...table('Contents', holds), ...table('Not included', left_out));
  const licences = button('Licences', () => window.open(MODULES.get('licenses.md')));
  dialog.append(element('p', `${instead}.`), close, ' ', licences);
  const line = element(
    'div',
    '',
    summary.cloneNode(true),
    button('About this file', () => dialog.showModal()),
  );
  line.id = 'about-file';
  line.append(themes());
  document.body.prepend(line, dialog);
  return dialog;
}

/** The theme of the system applies until the reader chooses one. */
function themes(): HTMLButtonElement {
  const root = document.documentElement;
  return button('Light or dark', () => {
    root.dataset.theme = root.dataset.theme === 'dark' ? 'light' : 'dark';
  });
}

/** Open links to other pages from the embedded data, or show why that is not possible. */
function followLinks(answers: Answers, dialog: HTMLDialogElement): void {
  const message = element('p');
  dialog.prepend(message);
  dialog.addEventListener('close', () => (message.textContent = ''));
  document.addEventListener('click', (event) => {
    const href = (event.target as Element).closest?.('a')?.getAttribute('href') ?? '';
    if (!/^\w+([?#]|$)/.test(href)) return;
    event.preventDefault();
    void answers.ask(href.split('#')[0]!).then(async (answer) => {
      if (answer.ok) return window.open(URL.createObjectURL(await answer.blob()));
      const { error } = (await answer.json()) as { error: ApiErrorBody };
      message.textContent = `${error.message}.`;
      dialog.showModal();
    });
  });
}

const STYLE = `
  #about-file { display: flex; flex-wrap: wrap; gap: 4px 12px; align-items: center; padding: 4px 16px;
    border-bottom: 1px solid var(--line); background: var(--raised); color: var(--muted); }
  #about-file p { flex: 1; margin: 0; }
  dialog { max-width: min(760px, 90vw); border: 1px solid var(--line-strong); border-radius: 5px;
    background: var(--bg); color: var(--text); }
  dialog th { padding: 2px 20px 2px 0; text-align: left; vertical-align: top; white-space: nowrap; }
  dialog td { padding: 2px 0; overflow-wrap: anywhere; }
  dialog h3 { margin-top: 12px; }
  details:has(a[href^='export?']), p:has(a[href^='trace_file?']) ~ * { display: none; }
`;

async function open(): Promise<void> {
  const [contents, index] = await Promise.all([json('#contents'), json('#index')]);
  const answers = new Answers(contents as Contents, index as Record<string, Location>);
  window.fetch = (url) => answers.ask(String(url));
  // Whatever page shows the file in a frame is no TensorBoard.
  Object.assign(window, { parent: window });
  for (const file of document.querySelectorAll<HTMLElement>('script[data-file]')) await load(file);
  Object.assign(window, { torchCompileModules: MODULES });
  const { place, title } = answers.contents;
  const texts = Object.entries(place).filter(([, text]) => text !== '');
  const hash = texts.map(([name, text]) => `&p.torch_compile.${name}=${encodeURIComponent(text)}`).join('');
  if (!location.hash) history.replaceState(null, '', `#torch_compile${hash}`);
  const { render } = (await import(MODULES.get('index.js')!)) as { render: (css: string) => Promise<void> };
  await render(MODULES.get('index.css')!);
  document.title = `torch.compile: ${title}`;
  document.head.append(element('style', STYLE));
  followLinks(answers, about(answers.contents));
}

void open();
