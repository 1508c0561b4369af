/** What the pieces of Python, C++ and JSON are, for their colours: one pattern a language, one group a kind. */
import type { SCOPES } from './tokens';

type Scope = (typeof SCOPES)[number];

interface Grammar {
  /** Every piece that is not plain, longest way of reading first; its named group is its scope. */
  pattern: RegExp;
  /** What the words are that mean something. */
  words: Map<string, Scope>;
}

const words = (scope: Scope, text: string) => text.split(/\s+/).map((word) => [word, scope] as const);

// A string that is cut off ends with its line, or with the text if it may have several lines.
const QUOTED = String.raw`"(?:\\[^]|[^"\\\n])*"?|'(?:\\[^]|[^'\\\n])*'?`;
const NUMBER = String.raw`\b(?:0[xXbBoO][\da-fA-F_]+|\d[\d_]*(?:\.[\d_]*)?(?:[eE][+-]?\d+)?)[a-zA-Z]*|\.\d+(?:[eE][+-]?\d+)?`;

const LANGUAGES: Record<string, Grammar> = {
  python: {
    pattern: new RegExp(
      [
        '(?<comment>#.*)',
        String.raw`(?<string>(?:\b[rRbBuUfF]{1,2})?(?:"""(?:\\[^]|[^\\])*?(?:"""|$(?![^]))|'''(?:\\[^]|[^\\])*?(?:'''|$(?![^]))|${QUOTED}))`,
        String.raw`(?<meta>^[ \t]*@[\w.]+)`,
        String.raw`(?<title>(?<=\b(?:def|class)\s+)\w+)`,
        String.raw`(?<word>\b[a-zA-Z_]\w*)`,
        `(?<number>${NUMBER})`,
      ].join('|'),
      'gm',
    ),
    words: new Map([
      ...words(
        'keyword',
        `and as assert async await break class continue def del elif else except finally for from global if import in
        is lambda nonlocal not or pass raise return try while with yield None True False self`,
      ),
      ...words(
        'type',
        `abs all any bool bytes dict enumerate float getattr hasattr int isinstance len list map max min object open
        print range repr reversed round set setattr slice sorted str sum super tuple type zip`,
      ),
    ]),
  },
  cpp: {
    pattern: new RegExp(
      [
        String.raw`(?<comment>//.*|/\*[^]*?(?:\*/|$(?![^])))`,
        String.raw`(?<meta>^[ \t]*#.*)`,
        String.raw`(?<string>\bR"(?<mark>[^(\s]*)\([^]*?(?:\)\k<mark>"|$(?![^]))|${QUOTED})`,
        String.raw`(?<word>\b[a-zA-Z_]\w*)`,
        `(?<number>${NUMBER})`,
      ].join('|'),
      'gm',
    ),
    words: new Map([
      ...words(
        'keyword',
        `alignas alignof asm auto break case catch class const constexpr const_cast continue decltype default delete do
        dynamic_cast else enum explicit extern false final for friend goto if inline mutable namespace new noexcept
        nullptr operator override private protected public register reinterpret_cast return sizeof static
        static_assert static_cast struct switch template this thread_local throw true try typedef typename union using
        virtual volatile while`,
      ),
      ...words(
        'type',
        `bool char double float int int8_t int16_t int32_t int64_t long short signed size_t std string uint8_t uint16_t
        uint32_t uint64_t unsigned void`,
      ),
    ]),
  },
  json: {
    pattern: new RegExp(
      `(?<title>"(?:\\\\.|[^"\\\\\\n])*"(?=\\s*:))|(?<string>"(?:\\\\.|[^"\\\\\\n])*"?)|(?<word>\\b[a-z]+)|(?<number>-?${NUMBER})`,
      'g',
    ),
    words: new Map(words('keyword', 'true false null')),
  },
};

/** The pieces of a text in their order, nothing left out; a language that is not known is one plain piece. */
export function* scoped(text: string, language: string): Generator<[piece: string, scope: Scope]> {
  const grammar = LANGUAGES[language];
  let at = 0;
  for (const match of grammar ? text.matchAll(grammar.pattern) : []) {
    const [scope] = Object.entries(match.groups!).find(([, piece]) => piece !== undefined)!;
    const word = scope === 'word' ? (grammar!.words.get(match[0]) ?? '') : (scope as Scope);
    if (match.index > at) yield [text.slice(at, match.index), ''];
    yield [match[0], word];
    at = match.index + match[0].length;
  }
  if (at < text.length) yield [text.slice(at), ''];
}
