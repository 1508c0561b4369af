/** highlight.js without its HTML: it tells what each piece of the text is, and pieces stay text. */
import type { HLJSOptions } from 'highlight.js';
import hljs from 'highlight.js/lib/core';
import cpp from 'highlight.js/lib/languages/cpp';
import json from 'highlight.js/lib/languages/json';
import python from 'highlight.js/lib/languages/python';
import { segments } from './segments';
import { SCOPES, TokenWriter, type Tokens } from './tokens';

const SCOPE_OF: Record<string, (typeof SCOPES)[number]> = {
  keyword: 'keyword',
  literal: 'keyword',
  'variable.language': 'keyword',
  string: 'string',
  'char.escape': 'string',
  regexp: 'string',
  number: 'number',
  comment: 'comment',
  doctag: 'comment',
  quote: 'comment',
  title: 'title',
  attr: 'title',
  type: 'type',
  built_in: 'type',
  meta: 'meta',
  symbol: 'meta',
};

let written: [text: string, scope: number][] = [];

/** What highlight.js writes into instead of its tree of HTML; inner languages write into the same. */
class Emitter {
  #scopes: number[] = [];

  addText(text: string): void {
    written.push([text, this.#scopes.at(-1) ?? 0]);
  }
  startScope(scope: string): void {
    this.#scopes.push(scopeNumber(scope) || (this.#scopes.at(-1) ?? 0));
  }
  endScope(): void {
    this.#scopes.pop();
  }
  openNode(scope: string): void {
    this.startScope(scope);
  }
  closeNode(): void {
    this.endScope();
  }
  closeAllNodes(): void {
    this.#scopes = [];
  }
  __addSublanguage(): void {}
  finalize(): void {}
  toHTML(): string {
    return '';
  }
}

function scopeNumber(scope: string): number {
  const name = SCOPE_OF[scope] ?? SCOPE_OF[scope.split('.', 1)[0]!];
  return name ? SCOPES.indexOf(name) : 0;
}

hljs.registerLanguage('python', python);
hljs.registerLanguage('cpp', cpp);
hljs.registerLanguage('json', json);
hljs.configure({ __emitter: Emitter } as unknown as Partial<HLJSOptions>);

const STRING = SCOPES.indexOf('string');

/** Tokens of a text; a language that is not known stays plain. */
export function highlight(text: string, language: string): Tokens {
  const writer = new TokenWriter();
  const plain = text.replaceAll('\r\n', '\n');
  for (const segment of segments(plain, language)) {
    for (const [piece, scope] of scoped(segment.text, segment.language)) writer.add(piece, scope);
  }
  return writer.end();
}

function scoped(text: string, language: string): [text: string, scope: number][] {
  if (language === 'string') return [[text, STRING]];
  if (!hljs.getLanguage(language)) return [[text, 0]];
  written = [];
  hljs.highlight(text, { language, ignoreIllegals: true });
  // highlight.js gives up in the middle of what it does not understand.
  const complete = written.reduce((sum, [piece]) => sum + piece.length, 0) === text.length;
  return complete ? written : [[text, 0]];
}
