/**
 * What each piece of a text is, line by line, for its colour. Pieces stay text: no HTML is made.
 * Inductor's output code is Python with Triton (Python) and C++ in strings: each is highlighted as its own language.
 */
import { scoped } from './languages';
import { SCOPES, TokenWriter, type Tokens } from './tokens';

/** Tokens of a text; a language that is not known stays plain. */
export function highlight(text: string, language: string): Tokens {
  const writer = new TokenWriter();
  for (const segment of segments(text.replaceAll('\r\n', '\n'), language)) {
    if (segment.language === 'string') writer.add(segment.text, SCOPES.indexOf('string'));
    else
      for (const [piece, scope] of scoped(segment.text, segment.language))
        writer.add(piece, SCOPES.indexOf(scope));
  }
  return writer.end();
}

interface Segment {
  text: string;
  /** "string" for the quotes around the code inside. */
  language: string;
}

const OPENING = /async_compile\.(triton|cpp|cpp_pybinding|cuda|metal)\([^\n]*?(r?'''|r?""")/g;
const INSIDE: Record<string, string> = {
  triton: 'python',
  cpp: 'cpp',
  cpp_pybinding: 'cpp',
  cuda: 'cpp',
  metal: 'cpp',
};

export function segments(text: string, language: string): Segment[] {
  if (language !== 'python') return [{ text, language }];
  const result: Segment[] = [];
  let from = 0;
  for (const match of text.matchAll(OPENING)) {
    const opening = match[2]!;
    const begins = match.index + match[0].length;
    if (begins - opening.length < from) continue;
    const ends = text.indexOf(opening.slice(-3), begins);
    if (ends < 0) break;
    result.push(
      { text: text.slice(from, begins - opening.length), language },
      { text: opening, language: 'string' },
      { text: text.slice(begins, ends), language: INSIDE[match[1]!]! },
      { text: opening.slice(-3), language: 'string' },
    );
    from = ends + 3;
  }
  result.push({ text: text.slice(from), language });
  return result.filter((segment) => segment.text !== '');
}
